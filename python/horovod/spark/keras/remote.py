# SPDX-License-Identifier: Apache-2.0
"""What each rank of a KerasEstimator does, and how models are sent. Start reading at train()."""

import io
import os
import tempfile

import numpy as np


def pack_model(model, custom_objects):
    """(the bytes of a .keras file, pickled custom objects)."""
    import cloudpickle

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.keras")
        model.save(path)
        with open(path, "rb") as file:
            return file.read(), cloudpickle.dumps(dict(custom_objects or {}))


def load_model(packed, backend):
    """The model, not compiled; keras must not have been imported with another backend."""
    os.environ.setdefault("KERAS_BACKEND", backend)
    import cloudpickle
    import keras

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.keras")
        with open(path, "wb") as file:
            file.write(packed[0])
        objects = cloudpickle.loads(packed[1])
        return keras.saving.load_model(path, custom_objects=objects, compile=False)


def pack_weights(model):
    """All weights, without pickles."""
    buffer = io.BytesIO()
    np.savez(buffer, *model.get_weights())
    return buffer.getvalue()


def unpack_weights(data):
    """What pack_weights() has made."""
    with np.load(io.BytesIO(data), allow_pickle=False) as file:
        return [file[f"arr_{i}"] for i in range(len(file.files))]


def _samples(plan, batches):
    """(inputs, labels[, weights]) for model.fit(), without end."""

    def one_or_all(values):
        return values[0] if len(values) == 1 else tuple(values)

    while True:
        for batch in batches:
            found = {
                name: values.astype(np.float32) if values.dtype == np.float64 else values
                for name, values in batch.items()
            }
            parts = [
                one_or_all([found[name] for name in plan["features"]]),
                one_or_all([found[name] for name in plan["labels"]]),
            ]
            if plan["weight"]:
                parts.append(found[plan["weight"]])
            yield tuple(parts)


def _compile(plan, model):
    import cloudpickle
    import keras

    import horovod.keras as hvd

    optimizer = keras.optimizers.deserialize(plan["optimizer"])
    optimizer.learning_rate = float(np.asarray(optimizer.learning_rate)) * hvd.size()
    options = {"compression": plan["compression"]} if plan["compression"] else {}
    optimizer = hvd.DistributedOptimizer(optimizer, **options)
    model.compile(
        optimizer=optimizer,
        loss=cloudpickle.loads(plan["loss"]),
        loss_weights=plan["loss_weights"],
        weighted_metrics=cloudpickle.loads(plan["metrics"]) or None,
    )


def _checkpoint_callback(plan):
    import keras

    path = plan["store"].get_checkpoint_path(plan["run_id"])

    class Checkpoint(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            if path is not None:
                plan["store"].write(path, pack_weights(self.model))

    return Checkpoint()


def train(plan, packed):
    """The history, and on rank 0 the weights."""
    model = load_model(packed, plan["keras_backend"])
    import cloudpickle
    import keras

    import horovod.keras as hvd
    from horovod.spark.common.dataset import plan_batches

    hvd.init()
    if plan["random_seed"] is not None:
        keras.utils.set_random_seed(plan["random_seed"])
    if plan["checkpoint"] is not None:
        model.set_weights(unpack_weights(plan["checkpoint"]))
    _compile(plan, model)
    callbacks = [
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        hvd.callbacks.MetricAverageCallback(),
        *cloudpickle.loads(plan["callbacks"]),
    ]
    if hvd.rank() == 0:
        callbacks.append(_checkpoint_callback(plan))
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
    weights = pack_weights(model) if hvd.rank() == 0 else b""
    hvd.shutdown()
    return history, weights
