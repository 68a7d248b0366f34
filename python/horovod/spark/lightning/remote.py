# SPDX-License-Identifier: Apache-2.0
"""What each rank of a Lightning TorchEstimator does: a Trainer with HorovodStrategy.

Start reading at train().
"""

import importlib
import io
import os


class TensorBatches:
    """The batches of a plan as training_step() gets them: dicts of tensors by column."""

    def __init__(self, plan, which, batches):
        self._plan, self._which, self._batches = plan, which, batches
        shapes = [plan["input_shapes"], plan["label_shapes"]]
        names = [plan["features"], plan["labels"]]
        self._shapes = {
            name: shape
            for columns, given in zip(names, shapes, strict=True)
            for name, shape in zip(columns, given or [None] * len(columns), strict=True)
        }

    def __len__(self):
        return len(self._batches)

    def __iter__(self):
        from horovod.spark.torch.remote import tensors_of

        names = self._plan["columns"]
        shapes = [self._shapes.get(name) for name in names]
        for number, batch in enumerate(self._batches, 1):
            # Before the last one is given out: the Trainer does not ask for another.
            if self._plan["debug_data_loader"] and number == len(self):
                print(f"read {number} batches of {self._which} data", flush=True)
            yield dict(zip(names, tensors_of(batch, names, shapes, "cpu"), strict=True))


def _loss_in(outputs):
    """What a step has returned as its loss, or None."""
    import torch

    found = outputs.get("loss") if isinstance(outputs, dict) else outputs
    return found.detach() if isinstance(found, torch.Tensor) and found.numel() == 1 else None


class _Mean:
    """Of tensors, without waiting for the device that computes them."""

    def __init__(self):
        self._sum, self._count = 0.0, 0

    def add(self, value):
        if value is not None:
            self._sum, self._count = self._sum + value, self._count + 1

    def values(self):
        return {"loss": float(self._sum) / self._count} if self._count else {}


def _average(values):
    """Over the ranks that have a value of this name."""
    import horovod.torch as hvd

    found = {}
    for one in hvd.allgather_object(values):
        for name, value in one.items():
            found.setdefault(name, []).append(value)
    return {name: sum(several) / len(several) for name, several in sorted(found.items())}


def _make_recorder(package, plan, folder):
    """A callback that keeps the history and, after each epoch, the checkpoint in the store."""
    import torch

    import horovod.torch as hvd

    store, run_id = plan["store"], plan["run_id"]

    class Recorder(importlib.import_module(f"{package}.callbacks").Checkpoint):
        def __init__(self):
            self.history = []
            self._train, self._val = _Mean(), _Mean()

        def on_train_epoch_start(self, trainer, module):
            self._train, self._val = _Mean(), _Mean()

        def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
            loss = _loss_in(outputs)
            if plan["terminate_on_nan"] and loss is not None and not torch.isfinite(loss):
                raise ValueError(
                    f"the loss is {float(loss)} in epoch {trainer.current_epoch}, batch "
                    f"{batch_idx} of rank {hvd.rank()}, and terminate_on_nan is set"
                )
            # Lightning has divided it.
            self._train.add(None if loss is None else loss * trainer.accumulate_grad_batches)

        def on_validation_batch_end(self, trainer, module, outputs, *_):
            self._val.add(_loss_in(outputs))

        def on_train_epoch_end(self, trainer, module):
            found = {"epoch": trainer.current_epoch, "train": _average(self._train.values())}
            if plan["val_path"]:
                found["validation"] = _average(self._val.values())
            logged = {name: float(value) for name, value in trainer.callback_metrics.items()}
            found["logged"] = _average(logged)
            self.history.append(found)
            if plan["verbose"] and hvd.rank() == 0:
                print(found, flush=True)
            self.save(trainer)

        def save(self, trainer):
            """The checkpoint, and whatever callbacks and loggers have written."""
            if store.saving_runs():
                trainer.save_checkpoint(os.path.join(folder, store.get_checkpoint_filename()))
                self.copy()

        def copy(self):
            if hvd.rank() == 0 and store.saving_runs():
                store.sync_fn(run_id)(folder)

    return Recorder()


def _resume(plan, folder):
    """(path of the checkpoint to begin with, or None; the epochs it has seen)."""
    import torch

    if plan["checkpoint"] is None:
        return None, 0
    path = os.path.join(folder, plan["store"].get_checkpoint_filename())
    with open(path, "wb") as file:
        file.write(plan["checkpoint"])
    return path, torch.load(path, weights_only=False, map_location="cpu")["epoch"] + 1


def _logger(package, given, plan, folder):
    if given is not None or not plan["store"].saving_runs():
        return given or False
    loggers = importlib.import_module(f"{package}.loggers")
    return loggers.CSVLogger(folder, name=plan["store"].get_logs_subdir(), version="")


def _make_trainer(plan, parts, device, folder, recorder, epochs):
    from horovod.spark.lightning.module import load_package
    from horovod.spark.lightning.strategy import make_strategy

    package = plan["package"]
    given = dict(parts["trainer_args"])
    callbacks = [*parts["callbacks"], *given.pop("callbacks", []), recorder]
    options = {
        "max_epochs": epochs,
        "logger": _logger(package, parts["logger"], plan, folder),
        "log_every_n_steps": plan["log_every_n_steps"],
        "profiler": parts["profiler"],
        "accumulate_grad_batches": plan["backward_passes"],
        "num_sanity_val_steps": 0,
        "default_root_dir": folder,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        **given,
    }
    return load_package(package).Trainer(
        accelerator="cpu" if device.type == "cpu" else "gpu",
        devices=1 if device.type == "cpu" else [device.index],
        strategy=make_strategy(package, device, plan["compression"]),
        use_distributed_sampler=False,
        callbacks=callbacks,
        **options,
    )


def train(plan, pickled):
    """The history and, on rank 0, the trained weights."""
    import cloudpickle
    import torch

    import horovod.torch as hvd
    from horovod.spark.common.dataset import plan_batches
    from horovod.spark.torch.remote import pick_device

    hvd.init()
    device = pick_device(plan)
    if plan["random_seed"] is not None:
        torch.manual_seed(plan["random_seed"])
    module, parts = cloudpickle.loads(pickled)
    batches = {
        which: TensorBatches(plan, which, plan_batches(plan, which, hvd.rank(), hvd.size()))
        for which in ("train", "val")
        if plan[f"{which}_path"]
    }
    with plan["store"].get_local_output_dir_fn(plan["run_id"])() as folder:
        path, seen = _resume(plan, folder)
        recorder = _make_recorder(plan["package"], plan, folder)
        trainer = _make_trainer(plan, parts, device, folder, recorder, seen + plan["epochs"])
        trainer.fit(module, batches["train"], batches.get("val"), ckpt_path=path)
        recorder.copy()  # loggers write their last lines when training ends
    buffer = io.BytesIO()
    if hvd.rank() == 0:
        torch.save({"model": module.state_dict()}, buffer)
    hvd.shutdown()
    return recorder.history, buffer.getvalue()
