# SPDX-License-Identifier: Apache-2.0
"""Horovod for tf.keras, be that Keras 2 or Keras 3.

import horovod.tensorflow.keras as hvd
hvd.init()
model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(0.01 * hvd.size())), ...)
model.fit(..., callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])
"""

import tensorflow as tf

from horovod import _keras as _impl
from horovod.common.process_sets import (  # noqa: F401
    ProcessSet,
    add_process_set,
    global_process_set,
    remove_process_set,
)
from horovod.tensorflow.keras import callbacks, elastic  # noqa: F401

keras = tf.keras
_bridge = _impl.bridge_of(keras.backend)
globals().update({name: getattr(_bridge.basics, name) for name in _impl.BASICS})
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
    backward_passes_per_step=1,
    average_aggregated_gradients=False,
    num_groups=0,
    groups=None,
    process_set=global_process_set,
    scale_local_gradients=True,
):
    """Wraps a Keras optimizer so that gradients are reduced over all ranks before they apply."""
    _impl.check_op(_bridge, op)
    return _impl.create_distributed_optimizer(
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
        groups=_impl.check_groups(num_groups, groups),
        process_set=process_set,
        scale_local_gradients=scale_local_gradients,
    )


def allreduce(
    value,
    name=None,
    average=None,
    prescale_factor=1.0,
    postscale_factor=1.0,
    op=None,
    compression=_NONE,
):
    """Reduces a value over all ranks; by default averages it."""
    return _impl.allreduce(
        keras.backend, value, name, average, prescale_factor, postscale_factor, op, compression
    )


_functions = _impl.Functions(keras, DistributedOptimizer)
broadcast_global_variables = _functions.broadcast_global_variables
allgather = _functions.allgather
broadcast = _functions.broadcast
reducescatter = _functions.reducescatter
load_model = _functions.load_model
