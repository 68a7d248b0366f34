# SPDX-License-Identifier: Apache-2.0
"""DistributedOptimizer for Module and updaters, DistributedTrainer for Gluon.

Both sum the gradients of all ranks, in place and by MXNet's engine, and let the optimizer's
`rescale_grad` turn the sum into an average: that costs no pass over the memory.
"""

import warnings
from collections import OrderedDict
from typing import Any

from horovod.common.names import Sum, global_process_set, rocm_built
from horovod.common.process_sets import ProcessSet
from horovod.common.util import split_list
from horovod.mxnet.compression import Compression
from horovod.mxnet.library import mx
from horovod.mxnet.mpi_ops import allreduce_, grouped_allreduce_


def _check_predivide(factor):
    if factor != 1.0 and rocm_built():
        raise ValueError("gradient_predivide_factor not supported yet with ROCm")


def _reduces(process_set):
    """Has this rank gradients to exchange?"""
    return process_set.included() and process_set.size() > 1


def _average_factor(gradient_predivide_factor, process_set):
    """What is left to multiply a sum of predivided gradients with; one rank reduces nothing."""
    size = process_set.size()
    return gradient_predivide_factor / size if size > 1 else 1.0


class DistributedOptimizer(mx.optimizer.Optimizer):
    """An optimizer that averages gradients over the ranks before it uses them.

    Everything but the reduction is the wrapped optimizer's: its attributes are read and set here.

    gradient_predivide_factor: the part of the division by the number of ranks that is done before
    the sum.
    num_groups: reduce lists of gradients in so many groups; 0 reduces each on its own.
    """

    _OWN = frozenset(("_optimizer", "_gradient_predivide_factor", "_num_groups", "_process_set"))

    def __init__(
        self,
        optimizer: Any,
        gradient_predivide_factor: float = 1.0,
        num_groups: int = 0,
        process_set: ProcessSet = global_process_set,
    ) -> None:
        # The wrapped optimizer has the state, so that of the base class is not made.
        _check_predivide(gradient_predivide_factor)
        self._optimizer = optimizer
        self._gradient_predivide_factor = gradient_predivide_factor
        self._num_groups = num_groups
        self._process_set = process_set
        if process_set.included():
            optimizer.rescale_grad *= _average_factor(gradient_predivide_factor, process_set)

    def __getattr__(self, item: str) -> Any:
        if item in DistributedOptimizer._OWN:
            raise AttributeError(item)  # a copy that is being made has nothing yet
        return getattr(self._optimizer, item)

    def __setattr__(self, item: str, value: Any) -> None:
        if item in DistributedOptimizer._OWN:
            object.__setattr__(self, item, value)
        else:
            setattr(self._optimizer, item, value)

    def create_state(self, index: Any, weight: Any) -> Any:
        """The wrapped optimizer's state for a weight."""
        return self._optimizer.create_state(index, weight)

    def create_state_multi_precision(self, index: Any, weight: Any) -> Any:
        """The wrapped optimizer's state for a weight, with a copy in float32 if it keeps one."""
        return self._optimizer.create_state_multi_precision(index, weight)

    def _do_allreduce(self, index, grad):
        if not _reduces(self._process_set):
            return
        options = {
            "op": Sum,
            "prescale_factor": 1.0 / self._gradient_predivide_factor,
            "process_set": self._process_set,
        }
        if not isinstance(index, (tuple, list)):
            allreduce_(grad, name=str(index), **options)
        elif self._num_groups > 0:
            count = min(self._num_groups, len(index))
            numbers = split_list(list(index), count)
            grads = split_list(list(grad), count)
            for i, (group, members) in enumerate(zip(numbers, grads, strict=True)):
                grouped_allreduce_(members, name=f"{group[0]}:{group[-1]}", priority=-i, **options)
        else:
            for i, (number, member) in enumerate(zip(index, grad, strict=True)):
                allreduce_(member, name=str(number), priority=-i, **options)

    def update(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        """Reduce the gradients, then let the wrapped optimizer use them."""
        self._do_allreduce(index, grad)
        self._optimizer.update(index, weight, grad, state)

    def update_multi_precision(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        """Reduce the gradients, then let the wrapped optimizer use them."""
        self._do_allreduce(index, grad)
        self._optimizer.update_multi_precision(index, weight, grad, state)

    def set_learning_rate(self, lr: float) -> None:
        """Set the wrapped optimizer's learning rate."""
        self._optimizer.set_learning_rate(lr)

    def set_lr_mult(self, args_lr_mult: dict) -> None:
        """Set factors for the learning rate of single weights."""
        self._optimizer.set_lr_mult(args_lr_mult)

    def set_wd_mult(self, args_wd_mult: dict) -> None:
        """Set factors for the weight decay of single weights."""
        self._optimizer.set_wd_mult(args_wd_mult)


class DistributedTrainer(mx.gluon.Trainer):
    """A Gluon Trainer that averages gradients over the ranks before each update.

    compression: what gradients travel as, of `hvd.Compression`.
    gradient_predivide_factor: the part of the division by the number of ranks that is done before
    the sum.
    prefix: goes before the names of gradients, to tell several trainers apart.
    num_groups: reduce gradients in so many groups; 0 reduces each on its own.
    """

    def __init__(
        self,
        params: Any,
        optimizer: Any,
        optimizer_params: dict | None = None,
        compression: Any = Compression.none,
        gradient_predivide_factor: float = 1.0,
        prefix: str | None = None,
        num_groups: int = 0,
        process_set: ProcessSet = global_process_set,
    ) -> None:
        _check_predivide(gradient_predivide_factor)
        self._compression = compression
        self._gradient_predivide_factor = gradient_predivide_factor
        self._prefix = prefix or ""
        self._num_groups = num_groups
        self._process_set = process_set
        if isinstance(optimizer, DistributedOptimizer):
            warnings.warn(
                "DistributedTrainer does not take DistributedOptimizer as its optimizer. We have "
                "unwrapped it for you."
            )
            scaled, optimizer = optimizer, optimizer._optimizer
            if scaled._process_set.included():
                optimizer.rescale_grad /= _average_factor(
                    scaled._gradient_predivide_factor, scaled._process_set
                )
        # All ranks must number the gradients alike.
        if isinstance(params, (dict, mx.gluon.parameter.ParameterDict)):
            params = OrderedDict((key, params[key]) for key in params)
        elif isinstance(params, (list, tuple)):
            params = sorted(params, key=lambda param: param.name)
        super().__init__(params, optimizer, optimizer_params=optimizer_params, kvstore=None)
        if process_set.included():
            self._scale *= _average_factor(gradient_predivide_factor, process_set)

    def _allreduce_grads(self):
        if not _reduces(self._process_set):
            return
        grads = [
            (i, param.list_grad()[0])
            for i, param in enumerate(self._params)
            if param.grad_req != "null"
        ]
        for priority, members in enumerate(self._groups(grads)):
            self._allreduce_group(members, -priority)

    def _groups(self, grads):
        """What is reduced together: lists of (number, gradient) of one type."""
        if self._num_groups <= 0:
            return [[member] for member in grads]
        groups = []
        for chunk in split_list(grads, min(self._num_groups, len(grads)) or 1):
            by_type = OrderedDict()
            for i, grad in chunk:
                by_type.setdefault(grad.dtype, []).append((i, grad))
            groups += by_type.values()
        return groups

    def _allreduce_group(self, members, priority):
        names = [self._prefix + str(i) for i, _ in members]
        compressed = [self._compression.compress(grad) for _, grad in members]
        tensors = [tensor for tensor, _ in compressed]
        options = {
            "op": Sum,
            "prescale_factor": 1.0 / self._gradient_predivide_factor,
            "process_set": self._process_set,
        }
        if self._num_groups > 0:
            name = f"{names[0]}:{names[-1]}"
            grouped_allreduce_(tensors, name=name, priority=priority, **options)
        else:
            # As in the names, the number among all parameters counts, also those without gradient.
            allreduce_(tensors[0], name=names[0], priority=-members[0][0], **options)
        for (_, grad), (tensor, context) in zip(members, compressed, strict=True):
            if tensor is not grad:
                grad[:] = self._compression.decompress(tensor, context)
