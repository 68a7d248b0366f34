# SPDX-License-Identifier: Apache-2.0
"""TorchEstimator and TorchModel for Lightning."""

from horovod.spark.common.params import with_params
from horovod.spark.lightning.module import load_package, package_of, to_lightning_module
from horovod.spark.lightning.remote import train
from horovod.spark.torch import estimator as torch_estimator

LIGHTNING = {
    "num_gpus": (None, "GPUs of a rank: 0 or 1; 1 where there are any if None"),
    "logger": (None, "a logger of Lightning; CSVLogger into the run's logs if None"),
    "log_every_n_steps": (50, "steps between two lines of the logger"),
    "loader_num_epochs": (None, "accepted; data is read as often as epochs need it"),
    "terminate_on_nan": (False, "fail when the loss is not finite"),
    "profiler": (None, "a profiler of Lightning, or its name"),
    "trainer_args": ({}, "further arguments of lightning.Trainer; they win"),
    "debug_data_loader": (False, "print how many batches an epoch has read"),
    "train_async_data_loader_queue_size": (None, "batches to read ahead, or their fraction"),
    "val_async_data_loader_queue_size": (None, "batches to read ahead, or their fraction"),
}
OURS = ("accelerator", "devices", "num_nodes", "strategy", "use_distributed_sampler")


@with_params(LIGHTNING)
class TorchEstimator(torch_estimator.TorchEstimator):
    """Trains a LightningModule; see horovod.spark.common.params for the parameters.

    Its steps get a dict of tensors by column. A plain torch.nn.Module can be given, too, with
    optimizer and loss. Each rank runs a lightning.Trainer with all its hooks, and trainer_args.
    """

    _no_effect = {
        **{k: v for k, v in torch_estimator.TorchEstimator._no_effect.items() if k != "callbacks"},
        "train_minibatch_fn": "training_step() of the module is called",
        "loader_num_epochs": "data is read as often as epochs need it",
    }

    def _is_plain(self):
        return package_of(self.getModel()) is None

    def _check(self):
        load_package(package_of(self.getModel()))
        super()._check()
        taken = sorted(set(self.getTrainerArgs()) & set(OURS))
        if taken:
            raise ValueError(
                f"trainer_args can't set {', '.join(taken)}: ranks and devices are Horovod's; see "
                "num_proc and num_gpus"
            )
        if self.getNumGpus() not in (None, 0, 1):
            raise ValueError(f"num_gpus is {self.getNumGpus()!r}; a rank has no or one GPU")

    def _needed(self):
        return super()._needed() if self._is_plain() else ("model", "store")

    def _read_ahead(self, which, steps):
        given = getattr(self, f"get{which.capitalize()}AsyncDataLoaderQueueSize")()
        if given is None:
            return super()._read_ahead(which, steps)
        return int(given * steps) if isinstance(given, float) else given

    def _plan(self, *args):
        plan = super()._plan(*args)
        plan.update(
            log_every_n_steps=self.getLogEveryNSteps(),
            terminate_on_nan=self.getTerminateOnNan(),
            debug_data_loader=self.getDebugDataLoader(),
        )
        if self.getNumGpus() == 0:
            plan["use_gpu"] = False
        return plan

    def _train(self, backend, features, has_validation, dataset_idx):
        plan = self._plan(backend, features, has_validation, dataset_idx)
        module = self.getModel()
        if self._is_plain():
            names = ("features", "labels", "weight", "loss", "loss_weights", "metrics")
            needed = {name: plan[name] for name in names}
            module = to_lightning_module(module, self.getOptimizer(), needed)
        plan["package"] = package_of(module)
        parts = {
            name: self.getOrDefault(getattr(self, name))
            for name in ("callbacks", "logger", "profiler", "trainer_args")
        }
        history, module = self._run_torch(backend, train, plan, (module, parts))
        return self._make_model(
            TorchModel, module.model if self._is_plain() else module, history, plan
        )


class TorchModel(torch_estimator.TorchModel):
    """A trained LightningModule as a transformer: calls its forward()."""
