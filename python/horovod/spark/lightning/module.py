# SPDX-License-Identifier: Apache-2.0
"""Which Lightning a module belongs to, and a LightningModule around a plain torch.nn.Module."""

import importlib
from typing import Any

from horovod.spark.torch.remote import as_list, loss_of

PACKAGES = ("lightning.pytorch", "pytorch_lightning")  # the same code under two names


def package_of(model: Any) -> str | None:
    """The package whose LightningModule this is; None for a plain module."""
    for cls in type(model).__mro__:
        for name in PACKAGES:
            if cls.__name__ == "LightningModule" and cls.__module__.startswith(f"{name}."):
                return name
    return None


def load_package(name: str | None) -> Any:
    """The package of this name, or whichever is installed; ImportError if it is older than 2.0."""
    for candidate in [name] if name else PACKAGES:
        try:
            found = importlib.import_module(candidate)
        except ModuleNotFoundError:
            continue
        if int(found.__version__.split(".")[0]) < 2:
            raise ImportError(
                f"{candidate} is {found.__version__}; horovod.spark.lightning needs 2.0 or newer"
            )
        return found
    raise ImportError(
        "horovod.spark.lightning needs Lightning: pip install lightning, or pytorch-lightning"
    )


def to_lightning_module(model: Any, optimizer: Any, plan: dict[str, Any]) -> Any:
    """A LightningModule that trains the model as horovod.spark.torch.TorchEstimator does."""

    class Wrapped(load_package(None).LightningModule):  # type: ignore[misc]
        def __init__(self):
            super().__init__()
            self.model, self._optimizer = model, optimizer

        def forward(self, *inputs):
            return self.model(*inputs)

        def configure_optimizers(self):
            return self._optimizer

        def _loss(self, batch):
            outputs = as_list(self(*(batch[name].float() for name in plan["features"])))
            labels = [batch[name] for name in plan["labels"]]
            weight = batch[plan["weight"]] if plan["weight"] else None
            return loss_of(plan, outputs, labels, weight), outputs, labels

        def _report(self, prefix, outputs, labels):
            for fn in plan["metrics"]:
                name = getattr(fn, "__name__", type(fn).__name__)
                value = fn(outputs[0].detach(), labels[0])
                self.log(f"{prefix}{name}", value, on_step=False, on_epoch=True)

        def training_step(self, batch, _):
            loss, outputs, labels = self._loss(batch)
            self._report("", outputs, labels)
            return loss

        def validation_step(self, batch, _):
            loss, outputs, labels = self._loss(batch)
            self._report("val_", outputs, labels)
            return loss

    return Wrapped()
