# SPDX-License-Identifier: Apache-2.0
"""HorovodStrategy: a Lightning Trainer whose ranks are those of Horovod.

The Trainer keeps its loops, callbacks and loggers; only what crosses ranks is here. Gradients are
reduced by hvd.DistributedOptimizer while backward runs. Learning rates are multiplied by the number
of ranks; checkpoints hold those of one rank. Start reading at setup() and optimizer_step().
"""

import importlib


def _scale_group(group, factor):
    for name in ("lr", "initial_lr"):
        if name in group:
            group[name] *= factor


def _scale_checkpoint(checkpoint, factor):
    """Learning rates of all optimizers and schedulers in a checkpoint of Lightning, in place."""
    for state in checkpoint.get("optimizer_states", []):
        for group in state["param_groups"]:
            _scale_group(group, factor)
    for state in checkpoint.get("lr_schedulers", []):
        for name in ("base_lrs", "_last_lr"):
            if name in state:
                state[name] = [rate * factor for rate in state[name]]
    return checkpoint


def _is_sum(reduce_op):
    return str(reduce_op).lower().rpartition(".")[2] == "sum"


def make_strategy(package, device, compression):
    """A HorovodStrategy for this package (lightning.pytorch or pytorch_lightning)."""
    import torch

    import horovod.torch as hvd

    class HorovodStrategy(importlib.import_module(f"{package}.strategies").ParallelStrategy):
        """Ranks of Horovod, one device each."""

        strategy_name = "horovod"
        global_rank = property(lambda self: hvd.rank())
        local_rank = property(lambda self: hvd.local_rank())
        node_rank = property(lambda self: hvd.cross_rank())
        world_size = property(lambda self: hvd.size())
        root_device = property(lambda self: device)
        distributed_sampler_kwargs = property(
            lambda self: {"num_replicas": hvd.size(), "rank": hvd.rank()}
        )

        def setup(self, trainer):
            self.model_to_device()
            super().setup(trainer)
            hvd.broadcast_parameters(self.lightning_module.state_dict(), root_rank=0)
            if self.optimizers:
                self.optimizers = [self._distribute(one, trainer) for one in self.optimizers]

        def _distribute(self, optimizer, trainer):
            for group in optimizer.param_groups:
                _scale_group(group, hvd.size())
            for config in self.lr_scheduler_configs:
                scheduler = config.scheduler
                if getattr(scheduler, "optimizer", None) is optimizer:
                    rates = getattr(scheduler, "base_lrs", [])
                    scheduler.base_lrs = [rate * hvd.size() for rate in rates]
                    optimizer._opt_called = True  # step() is called on the wrapper
            hvd.broadcast_optimizer_state(optimizer, root_rank=0)
            own = {id(p) for group in optimizer.param_groups for p in group["params"]}
            named = self.lightning_module.named_parameters()
            return hvd.DistributedOptimizer(
                optimizer,
                named_parameters=[(name, p) for name, p in named if id(p) in own],
                compression=compression or hvd.Compression.none,
                backward_passes_per_step=trainer.accumulate_grad_batches,
            )

        def model_to_device(self):
            self.model.to(device)

        def optimizer_step(self, optimizer, closure, model=None, **kwargs):
            """The closure runs backward: reduce after it, and before gradients are clipped."""

            def reduced():
                result = closure()
                optimizer.synchronize()
                return result

            with optimizer.skip_synchronize():
                return super().optimizer_step(optimizer, reduced, model, **kwargs)

        # ---- what crosses ranks ----

        def barrier(self, name=None):
            hvd.barrier()

        def broadcast(self, obj, src=0):
            return hvd.broadcast_object(obj, src)

        def reduce(self, tensor, group=None, reduce_op="mean"):
            if not isinstance(tensor, torch.Tensor):
                return tensor
            return hvd.allreduce(tensor, op=hvd.Sum if _is_sum(reduce_op) else hvd.Average)

        def all_gather(self, tensor, group=None, sync_grads=False):
            """One row per rank; all must have the same shape."""
            with torch.set_grad_enabled(sync_grads and torch.is_grad_enabled()):
                return hvd.allgather(tensor.unsqueeze(0))

        # ---- checkpoints ----

        def save_checkpoint(self, checkpoint, filepath, storage_options=None):
            _scale_checkpoint(checkpoint, 1 / hvd.size())
            super().save_checkpoint(checkpoint, filepath, storage_options)

        def load_checkpoint(self, *args, **kwargs):
            return _scale_checkpoint(super().load_checkpoint(*args, **kwargs), hvd.size())

    return HorovodStrategy()
