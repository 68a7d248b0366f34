# SPDX-License-Identifier: Apache-2.0
"""Horovod for stand-alone Keras (`import keras`): Keras 2, and Keras 3 on any of its backends.

import horovod.keras as hvd
hvd.init()
model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(0.01 * hvd.size())), ...)
model.fit(..., callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])
"""

from typing import TYPE_CHECKING, Any

from horovod.common.util import missing_framework

try:
    import keras
except ModuleNotFoundError as error:
    raise missing_framework("horovod.keras", "Keras", "keras tensorflow", error) from error

from horovod import _keras as _impl
from horovod.common.compression import Compressor
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.common.reduction import Reduction
from horovod.keras import callbacks, elastic  # noqa: F401

_bridge = _impl.bridge_of(keras.backend)
if TYPE_CHECKING:
    from horovod.common.names import *  # noqa: F403
globals().update({name: getattr(_bridge.basics, name) for name in _impl.BASICS})
Adasum = _bridge.basics.Adasum
_AVERAGE, _NONE = _bridge.basics.Average, _bridge.none


def DistributedOptimizer(  # noqa: N802
    optimizer: Any,
    name: str | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = _NONE,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: int = _AVERAGE,
    num_groups: int = 0,
    groups: int | list | None = None,
) -> Any:
    """Wraps a Keras optimizer so that gradients are reduced over all ranks before they apply."""
    return PartialDistributedOptimizer(
        *(optimizer, name, device_dense, device_sparse, compression, sparse_as_dense),
        *(gradient_predivide_factor, op),
        groups=_impl.check_groups(num_groups, groups),
    )


def PartialDistributedOptimizer(  # noqa: N802
    optimizer: Any,
    name: str | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = _NONE,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: int = _AVERAGE,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    groups: int | list | None = None,
    process_set: ProcessSet = global_process_set,
    local_layers: Any = None,
    scale_local_gradients: bool = True,
) -> Any:
    """A DistributedOptimizer that leaves the weights of `local_layers` to each rank."""
    _impl.check_op(op)
    layers = _impl.layers_of(local_layers)
    how = Reduction(
        *(name, device_dense, device_sparse, compression, sparse_as_dense, op),
        *(gradient_predivide_factor, _impl.check_groups(0, groups), process_set),
    )
    local = (backward_passes_per_step, average_aggregated_gradients, scale_local_gradients)
    wrapped = _impl.wrap_optimizer(keras, optimizer, how, *local)
    for layer in layers:
        for variable in layer.trainable_weights:
            wrapped.register_local_var(variable)
    return wrapped


def allreduce(
    value: Any,
    name: str | None = None,
    average: bool | None = True,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    op: int | None = None,
    compression: type[Compressor] = _NONE,
) -> Any:
    """Reduces a value over all ranks.

    By default averages it; to give `op`, pass average=None as well.
    """
    return _impl.allreduce(
        keras.backend, value, name, average, prescale_factor, postscale_factor, op, compression
    )


_functions = _impl.Functions(keras, DistributedOptimizer)
broadcast_global_variables = _functions.broadcast_global_variables
allgather = _functions.allgather
broadcast = _functions.broadcast
reducescatter = _functions.reducescatter
load_model = _functions.load_model
