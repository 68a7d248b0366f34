# SPDX-License-Identifier: Apache-2.0
"""What each rank of a KerasEstimator does, and how models are sent. Start reading at train().

A model belongs to `keras`, which is Keras 2 or 3, or to `tf_keras`, Keras 2 beside Keras 3.
"""

import importlib
import io
import os
import tempfile

import numpy as np


def package_of(model):
    """The package that the model's Keras has: keras or tf_keras."""
    names = {cls.__module__.partition(".")[0] for cls in type(model).__mro__}
    return "tf_keras" if "tf_keras" in names else "keras"


def import_keras(package, backend):
    """keras or tf_keras; keras must not have been imported with another backend."""
    if package == "tf_keras":
        os.environ["TF_USE_LEGACY_KERAS"] = "1"
    elif backend:
        os.environ.setdefault("KERAS_BACKEND", backend)
    return importlib.import_module(package)


def import_horovod(package):
    """The Horovod of this Keras."""
    return importlib.import_module(
        "horovod.tensorflow.keras" if package == "tf_keras" else "horovod.keras"
    )


def pack_model(model, custom_objects):
    """(the bytes of a .keras file, pickled custom objects)."""
    import cloudpickle

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.keras")
        model.save(path)
        with open(path, "rb") as file:
            return file.read(), cloudpickle.dumps(dict(custom_objects or {}))


def load_model(packed, package, backend):
    """The model, not compiled."""
    import cloudpickle

    keras = import_keras(package, backend)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.keras")
        with open(path, "wb") as file:
            file.write(packed[0])
        objects = cloudpickle.loads(packed[1])
        return keras.saving.load_model(path, custom_objects=objects, compile=False)


def pack_state(model, size):
    """All weights, and the optimizer with the learning rate of one rank, without pickles."""
    own = {}
    if hasattr(model.optimizer, "save_own_variables"):  # legacy optimizers of Keras 2 can't
        model.optimizer.save_own_variables(own)
    arrays = {f"weight{i}": value for i, value in enumerate(model.get_weights())}
    arrays.update({f"optimizer{name}": value for name, value in own.items()})
    arrays["rate"] = np.asarray(model.optimizer.learning_rate) / size
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def unpack_weights(data):
    """The weights that pack_state() has stored."""
    with np.load(io.BytesIO(data), allow_pickle=False) as file:
        count = sum(name.startswith("weight") for name in file.files)
        return [file[f"weight{i}"] for i in range(count)]


def _restore_optimizer(model, data, size):
    with np.load(io.BytesIO(data), allow_pickle=False) as file:
        names = [name for name in file.files if name.startswith("optimizer")]
        if names:
            own = {name[len("optimizer") :]: file[name] for name in names}
            model.optimizer.build(model.trainable_variables)
            model.optimizer.load_own_variables(own)
        model.optimizer.learning_rate = float(file["rate"]) * size


def _samples(plan, batches):
    """(inputs, labels[, weights]) for model.fit(), without end."""

    def one_or_all(values):
        return values[0] if len(values) == 1 else tuple(values)

    shapes = plan["label_shapes"] or [None] * len(plan["labels"])
    while True:
        for batch in batches:
            found = {
                name: values.astype(np.float32) if values.dtype == np.float64 else values
                for name, values in batch.items()
            }
            parts = [
                one_or_all([found[name] for name in plan["features"]]),
                one_or_all(
                    [
                        found[name] if shape is None else found[name].reshape(shape)
                        for name, shape in zip(plan["labels"], shapes, strict=True)
                    ]
                ),
            ]
            if plan["weight"]:
                parts.append(found[plan["weight"]])
            yield tuple(parts)


def _compile(plan, model, hvd):
    import cloudpickle

    keras = import_keras(plan["keras"], None)
    optimizer = keras.optimizers.deserialize(plan["optimizer"])
    optimizer.learning_rate = float(np.asarray(optimizer.learning_rate)) * hvd.size()
    options = {"compression": plan["compression"]} if plan["compression"] else {}
    make = hvd.DistributedOptimizer
    if plan["backward_passes"] != 1:
        options["backward_passes_per_step"] = plan["backward_passes"]
        make = getattr(hvd, "PartialDistributedOptimizer", make)  # horovod.keras has both
    optimizer = make(optimizer, **options)
    model.compile(
        optimizer=optimizer,
        loss=cloudpickle.loads(plan["loss"]),
        loss_weights=plan["loss_weights"],
        weighted_metrics=cloudpickle.loads(plan["metrics"]) or None,
    )


def _saving_callbacks(plan, given, folder, size):
    """Rank 0's: the state to the store after each epoch, and what checkpoint_callback writes."""
    keras = import_keras(plan["keras"], None)
    store, path = plan["store"], plan["store"].get_checkpoint_path(plan["run_id"])
    if path is None:
        return []
    if given is not None:
        given.filepath = os.path.join(folder, os.path.basename(given.filepath))

    class Checkpoint(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            store.write(path, pack_state(self.model, size))
            store.sync_fn(plan["run_id"])(folder)

    return [*([given] if given is not None else []), Checkpoint()]


def _choose_gpu(plan):
    """Before TensorFlow or another library looks for GPUs: this rank sees its own one, or none."""
    from horovod.spark.task import gpu_index

    if not plan["use_gpu"]:
        os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
        return
    number = gpu_index(int(os.environ.get("HOROVOD_LOCAL_RANK", 0)))
    visible = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    if not visible or number < len(visible):
        os.environ["CUDA_VISIBLE_DEVICES"] = visible[number] if visible else str(number)


def train(plan, packed):
    """The history, and on rank 0 the state."""
    _choose_gpu(plan)
    with plan["store"].get_local_output_dir_fn(plan["run_id"])() as folder:
        return _train(plan, packed, folder)


def _train(plan, packed, folder):
    import cloudpickle

    from horovod.spark.common.dataset import plan_batches

    model = load_model(packed, plan["keras"], plan["keras_backend"])
    keras, hvd = import_keras(plan["keras"], None), import_horovod(plan["keras"])
    hvd.init()
    if plan["random_seed"] is not None:
        keras.utils.set_random_seed(plan["random_seed"])
    _compile(plan, model, hvd)
    if plan["checkpoint"] is not None:
        model.set_weights(unpack_weights(plan["checkpoint"]))
        _restore_optimizer(model, plan["checkpoint"], hvd.size())
    given, saving = cloudpickle.loads(plan["callbacks"])
    callbacks = [
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        hvd.callbacks.MetricAverageCallback(),
        *given,
    ]
    if hvd.rank() == 0:
        callbacks += _saving_callbacks(plan, saving, folder, hvd.size())
    checks = {}
    if plan["val_path"]:
        batches = plan_batches(plan, "val", hvd.rank(), hvd.size())
        checks = {
            "validation_data": _samples(plan, batches),
            "validation_steps": plan["val_steps"],
        }
    fitted = model.fit(
        _samples(plan, plan_batches(plan, "train", hvd.rank(), hvd.size())),
        steps_per_epoch=plan["steps"],
        epochs=plan["epochs"],
        verbose=2 if plan["verbose"] and hvd.rank() == 0 else 0,
        callbacks=callbacks,
        **checks,
    )
    history = {name: [float(v) for v in values] for name, values in fitted.history.items()}
    state = pack_state(model, hvd.size()) if hvd.rank() == 0 else b""
    hvd.shutdown()
    return history, state
