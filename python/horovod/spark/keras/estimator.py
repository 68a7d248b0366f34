# SPDX-License-Identifier: Apache-2.0
"""KerasEstimator and KerasModel."""

from typing import Any

from horovod.spark.common.estimator import HorovodEstimator, HorovodModel, Predictor
from horovod.spark.common.params import with_params
from horovod.spark.keras.remote import (
    import_keras,
    load_model,
    pack_model,
    package_of,
    train,
    unpack_weights,
)

KERAS = {
    "custom_objects": ({}, "classes and functions that the model needs to be loaded"),
    "checkpoint_callback": (None, "a ModelCheckpoint for rank 0; its file goes to the run"),
    "data_module": (None, "accepted; pyarrow.dataset reads data"),
    "backend_env": ({}, "variables of the ranks"),
    "tensorflow_dataset_prefetch_buffer_size": (0, "batches to read ahead; 0: the usual number"),
}


def _keras_of(model):
    return import_keras(package_of(model), None)


@with_params(KERAS)
class KerasEstimator(HorovodEstimator):
    """Trains a keras.Model of Keras 2 or 3; see horovod.spark.common.params for the parameters.

    The model gets one array per feature column and has one output per label column. Without an
    optimizer the one that the model was compiled with is used.
    """

    _prefix = "keras"

    def _check(self):
        super()._check()
        if self.getOptimizer() is None and getattr(self.getModel(), "optimizer", None) is None:
            raise ValueError("optimizer must be set, or the model must have been compiled")
        is_2 = _keras_of(self.getModel()).__version__.startswith("2.")
        if self.getBackwardPassesPerStep() != 1 and not is_2:
            raise ValueError(
                "backward_passes_per_step must be 1 with Keras 3: give gradient_accumulation_steps "
                "to the optimizer instead"
            )

    def _read_ahead(self, which, steps):
        usual = super()._read_ahead(which, steps)
        return (self.getTensorflowDatasetPrefetchBufferSize() or usual) if usual else 0

    def _train(self, backend, features, has_validation, dataset_idx):
        import cloudpickle

        keras = _keras_of(self.getModel())
        plan = self._plan(backend, features, has_validation, dataset_idx)
        optimizer = self.getOptimizer() or self.getModel().optimizer
        plan.update(
            optimizer=keras.optimizers.serialize(optimizer),
            loss=cloudpickle.dumps(self.getLoss()),
            metrics=cloudpickle.dumps(self.getMetrics()),
            callbacks=cloudpickle.dumps((self.getCallbacks(), self.getCheckpointCallback())),
            label_shapes=self.getLabelShapes(),
            backward_passes=self.getBackwardPassesPerStep(),
            loss_weights=self.getLossWeights(),
            compression=self.getGradientCompression(),
            checkpoint=self._last_checkpoint(plan["run_id"]),
            keras=keras.__name__,
            keras_backend=keras.backend.backend(),
        )
        packed = pack_model(self.getModel(), self.getCustomObjects())
        history, state = self._run(backend, train, plan, packed)[0]
        model = load_model(packed, plan["keras"], plan["keras_backend"])
        model.set_weights(unpack_weights(state))
        return KerasModel(
            model=model,
            history=history,
            feature_columns=features,
            label_columns=list(self.getLabelCols()),
            run_id=plan["run_id"],
            custom_objects=self.getCustomObjects(),
        )

    def _run(self, backend, fn, plan, *args):
        env = {"KERAS_BACKEND": plan["keras_backend"]}
        if plan["keras"] == "tf_keras":
            env["TF_USE_LEGACY_KERAS"] = "1"
        env.update(self.getBackendEnv())
        return backend.run(fn, args=(plan, *args), env=env)


class KerasPredictor(Predictor):
    """Calls a keras.Model."""

    def __init__(self, model: Any, custom_objects: Any) -> None:
        keras = _keras_of(model)
        self._packed = pack_model(model, custom_objects)
        self._package, self._backend = keras.__name__, keras.backend.backend()

    def _load(self):
        return load_model(self._packed, self._package, self._backend)

    def _predict(self, model, arrays):
        outputs = model.predict_on_batch(arrays if len(arrays) > 1 else arrays[0])
        outputs = outputs if isinstance(outputs, (list, tuple)) else [outputs]
        return [output.reshape(len(arrays[0]), -1) for output in outputs]


@with_params({"custom_objects": KERAS["custom_objects"]})
class KerasModel(HorovodModel):
    """A trained keras.Model as a transformer."""

    def _predictor(self) -> Any:
        return KerasPredictor(self.getModel(), self.getCustomObjects())
