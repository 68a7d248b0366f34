# SPDX-License-Identifier: Apache-2.0
"""Horovod for stand-alone Keras (`import keras`): Keras 2, and Keras 3 on any of its backends.

import horovod.keras as hvd
hvd.init()
model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(0.01 * hvd.size())), ...)
model.fit(..., callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])
"""

import keras

from horovod import _keras as _impl
from horovod.common.process_sets import global_process_set
from horovod.keras import callbacks, elastic  # noqa: F401

_bridge = _impl.bridge_of(keras.backend)
globals().update({name: getattr(_bridge.basics, name) for name in _impl.BASICS})
Adasum = _bridge.basics.Adasum
_AVERAGE, _NONE = _bridge.basics.Average, _bridge.none


def DistributedOptimizer(  # noqa: N802
    optimizer,
    name=None,
    device_dense="",
    device_sparse="",
    compression=_NONE,
    sparse_as_dense=False,
    gradient_predivide_factor=1.0,
    op=_AVERAGE,
    num_groups=0,
    groups=None,
):
    """Wraps a Keras optimizer so that gradients are reduced over all ranks before they apply."""
    return PartialDistributedOptimizer(
        optimizer,
        name,
        device_dense,
        device_sparse,
        compression,
        sparse_as_dense,
        gradient_predivide_factor,
        op,
        groups=_impl.check_groups(num_groups, groups),
    )


def PartialDistributedOptimizer(  # noqa: N802
    optimizer,
    name=None,
    device_dense="",
    device_sparse="",
    compression=_NONE,
    sparse_as_dense=False,
    gradient_predivide_factor=1.0,
    op=_AVERAGE,
    backward_passes_per_step=1,
    average_aggregated_gradients=False,
    groups=None,
    process_set=global_process_set,
    local_layers=None,
    scale_local_gradients=True,
):
    """A DistributedOptimizer that leaves the weights of `local_layers` to each rank."""
    _impl.check_op(_bridge, op)
    layers = _impl.layers_of(local_layers)
    wrapped = _impl.create_distributed_optimizer(
        keras=keras,
        optimizer=optimizer,
        name=name,
        device_dense=device_dense,
        device_sparse=device_sparse,
        compression=compression,
        sparse_as_dense=sparse_as_dense,
        gradient_predivide_factor=gradient_predivide_factor,
        op=op,
        backward_passes_per_step=backward_passes_per_step,
        average_aggregated_gradients=average_aggregated_gradients,
        groups=_impl.check_groups(0, groups),
        process_set=process_set,
        scale_local_gradients=scale_local_gradients,
    )
    for layer in layers:
        for variable in layer.trainable_weights:
            wrapped.register_local_var(variable)
    return wrapped


def allreduce(
    value,
    name=None,
    average=True,
    prescale_factor=1.0,
    postscale_factor=1.0,
    op=None,
    compression=_NONE,
):
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
