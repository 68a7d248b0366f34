# SPDX-License-Identifier: Apache-2.0
"""TorchEstimator and TorchModel."""

import io
from typing import Any

from horovod.spark.common.estimator import HorovodEstimator, HorovodModel, Predictor
from horovod.spark.common.params import with_params
from horovod.spark.torch.remote import as_list, train

TORCH = {
    "input_shapes": (None, "shapes of the inputs, -1 for the batch: [[-1, 1, 28, 28]]"),
    "loss_constructors": (None, "functions that make the losses; exclusive with loss"),
    "train_minibatch_fn": (None, "replaces the training step: fn(model, inputs, labels, loss_fn)"),
    "data_module": (None, "accepted; pyarrow.dataset reads data"),
}


@with_params(TORCH)
class TorchEstimator(HorovodEstimator):
    """Trains a torch.nn.Module; see horovod.spark.common.params for the parameters.

    The model is called with one tensor per feature column, in input_shapes, and returns one output
    per label column. The optimizer is an instance over the model's parameters.
    """

    _prefix = "pytorch"
    _no_effect = {
        **HorovodEstimator._no_effect,
        "callbacks": "PyTorch has no callbacks; use train_minibatch_fn, or Lightning",
    }

    def _needed(self):
        return ("model", "store", "loss", "optimizer")

    def _check(self):
        if self.getLoss() is not None and self.getLossConstructors() is not None:
            raise ValueError("loss and loss_constructors can't be set together: use one of them")
        if self.getLossConstructors() is not None:
            self._set(loss=[make() for make in as_list(self.getLossConstructors())])
            self._set(loss_constructors=None)
        super()._check()
        shapes, features = self.getInputShapes(), self.getFeatureCols()
        if shapes is not None and features is not None and len(shapes) != len(features):
            raise ValueError(
                f"input_shapes has {len(shapes)} shapes for {len(features)} feature columns"
            )
        losses = as_list(self.getLoss())
        labels = self.getLabelCols()
        if self.getLoss() is not None and labels and len(losses) not in (1, len(labels)):
            raise ValueError(f"there are {len(losses)} losses for {len(labels)} label columns")

    def _plan(self, *args):
        plan = super()._plan(*args)
        plan.update(
            loss=as_list(self.getLoss()),
            loss_weights=self.getLossWeights(),
            metrics=self.getMetrics(),
            input_shapes=self.getInputShapes(),
            label_shapes=self.getLabelShapes(),
            compression=self.getGradientCompression(),
            backward_passes=self.getBackwardPassesPerStep(),
            minibatch_fn=self.getTrainMinibatchFn(),
            checkpoint=self._last_checkpoint(plan["run_id"]),
        )
        return plan

    def _train(self, backend, features, has_validation, dataset_idx):
        plan = self._plan(backend, features, has_validation, dataset_idx)
        parts = (self.getModel(), self.getOptimizer())
        history, model = self._run_torch(backend, train, plan, parts)
        return self._make_model(TorchModel, model, history, plan)

    def _run_torch(self, backend, fn, plan, parts):
        """The history, and a trained copy of the model, the first of the parts."""
        import cloudpickle
        import torch

        pickled = cloudpickle.dumps(parts)
        history, state = self._run(backend, fn, plan, pickled)[0]
        model = cloudpickle.loads(pickled)[0]
        model.load_state_dict(torch.load(io.BytesIO(state), weights_only=True)["model"])
        return history, model

    def _make_model(self, cls, model, history, plan):
        return cls(
            model=model,
            history=history,
            feature_columns=plan["features"],
            label_columns=plan["labels"],
            run_id=plan["run_id"],
            input_shapes=self.getInputShapes(),
        )


class TorchPredictor(Predictor):
    """Calls a torch.nn.Module."""

    def __init__(self, model: Any, shapes: Any) -> None:
        import cloudpickle

        self._pickled, self._shapes = cloudpickle.dumps(model.eval()), shapes

    def _load(self):
        import cloudpickle

        return cloudpickle.loads(self._pickled)

    def _predict(self, model, arrays):
        import torch

        inputs = [torch.from_numpy(array) for array in arrays]
        shapes = self._shapes or [x.shape for x in inputs]
        inputs = [x.reshape(shape) for x, shape in zip(inputs, shapes, strict=True)]
        with torch.no_grad():
            outputs = model(*inputs)
        outputs = outputs if isinstance(outputs, (list, tuple)) else [outputs]
        return [output.reshape(len(arrays[0]), -1).numpy() for output in outputs]


class TorchModel(HorovodModel):
    """A trained torch.nn.Module as a transformer."""

    def _predictor(self) -> Any:
        return TorchPredictor(self.getModel(), self.getInputShapes())
