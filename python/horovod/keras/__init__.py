# SPDX-License-Identifier: Apache-2.0
"""Horovod for stand-alone Keras (`import keras`), Keras 2 or Keras 3.

import horovod.keras as hvd
hvd.init()
model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(0.01 * hvd.size())), ...)
model.fit(..., callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])
"""

import keras

if keras.backend.backend() != "tensorflow":
    raise ImportError(
        f"horovod.keras works with Keras on TensorFlow; the backend here is "
        f"{keras.backend.backend()!r}. Use horovod.torch or horovod.jax with that one."
    )

from horovod import _keras as _impl
from horovod.common.process_sets import global_process_set
from horovod.keras import callbacks, elastic
from horovod.tensorflow import (
    Adasum,
    Average,
    Compression,
    Sum,
    ccl_built,
    cross_rank,
    cross_size,
    cuda_built,
    ddl_built,
    gloo_built,
    gloo_enabled,
    init,
    is_homogeneous,
    is_initialized,
    local_rank,
    local_size,
    mpi_built,
    mpi_enabled,
    mpi_threads_supported,
    nccl_built,
    rank,
    rocm_built,
    shutdown,
    size,
    start_timeline,
    stop_timeline,
)
from horovod.tensorflow.gradients import _check_groups

_K = keras.backend


def DistributedOptimizer(  # noqa: N802
    optimizer,
    name=None,
    device_dense="",
    device_sparse="",
    compression=Compression.none,
    sparse_as_dense=False,
    gradient_predivide_factor=1.0,
    op=Average,
    num_groups=0,
    groups=None,
):
    """Wraps a Keras optimizer so that gradients are reduced over all ranks before they apply."""
    if op not in (Average, Sum):
        raise ValueError("op currently only supports Average and Sum")
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
        groups=_check_groups(num_groups, groups),
    )


def PartialDistributedOptimizer(  # noqa: N802
    optimizer,
    name=None,
    device_dense="",
    device_sparse="",
    compression=Compression.none,
    sparse_as_dense=False,
    gradient_predivide_factor=1.0,
    op=Average,
    backward_passes_per_step=1,
    average_aggregated_gradients=False,
    groups=None,
    process_set=global_process_set,
    local_layers=None,
    scale_local_gradients=True,
):
    """A DistributedOptimizer that leaves the weights of `local_layers` to each rank."""
    if op not in (Average, Sum):
        raise ValueError("op currently only supports Average and Sum")
    if local_layers is None:
        local_layers = []
    elif hasattr(local_layers, "trainable_weights"):
        local_layers = [local_layers]
    elif not all(hasattr(layer, "trainable_weights") for layer in local_layers):
        raise ValueError("All local layers must be of tf.keras.layers.Layer type.")
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
        groups=_check_groups(0, groups),
        process_set=process_set,
        scale_local_gradients=scale_local_gradients,
    )
    for layer in local_layers:
        for variable in layer.trainable_weights:
            wrapped.register_local_var(variable)
    return wrapped


def broadcast_global_variables(root_rank):
    """Graph mode: broadcasts all global variables."""
    return _impl.broadcast_global_variables(_K, root_rank)


def allreduce(
    value,
    name=None,
    average=True,
    prescale_factor=1.0,
    postscale_factor=1.0,
    op=None,
    compression=Compression.none,
):
    """Reduces a value over all ranks.

    By default averages it; to give `op`, pass average=None as well.
    """
    return _impl.allreduce(
        _K, value, name, average, prescale_factor, postscale_factor, op, compression
    )


def allgather(value, name=None):
    """The values of all ranks, concatenated along the first dimension."""
    return _impl.allgather(_K, value, name)


def broadcast(value, root_rank, name=None):
    """The value of `root_rank`."""
    return _impl.broadcast(_K, value, root_rank, name)


def reducescatter(value, name=None, op=Average):
    """This rank's share of the reduced value."""
    return _impl.reducescatter(_K, value, name, op)


def load_model(
    filepath,
    custom_optimizers=None,
    custom_objects=None,
    compression=Compression.none,
    legacy_opts=False,
):
    """Loads a saved model; its optimizer is wrapped and keeps its state."""

    def wrap_optimizer(optimizer):
        return DistributedOptimizer(optimizer, compression=compression)

    return _impl.load_model(
        keras, wrap_optimizer, filepath, custom_optimizers, custom_objects, legacy_opts
    )
