# SPDX-License-Identifier: Apache-2.0
"""Horovod for MXNet: `import horovod.mxnet as hvd`."""

import atexit as _atexit

from horovod.mxnet.compression import Compression
from horovod.mxnet.functions import allgather_object, broadcast_object, broadcast_parameters
from horovod.mxnet.library import leave as _leave_engine
from horovod.mxnet.library import mx as _mx
from horovod.mxnet.mpi_ops import (
    Adasum,
    Average,
    Max,
    Min,
    ProcessSet,
    Product,
    Sum,
    add_process_set,
    advise,
    allgather,
    allreduce,
    allreduce_,
    alltoall,
    broadcast,
    broadcast_,
    ccl_built,
    cross_rank,
    cross_size,
    cuda_built,
    ddl_built,
    dump,
    global_process_set,
    gloo_built,
    gloo_enabled,
    grouped_allgather,
    grouped_allreduce,
    grouped_allreduce_,
    grouped_reducescatter,
    init,
    is_homogeneous,
    is_initialized,
    local_rank,
    local_size,
    metrics,
    mpi_built,
    mpi_enabled,
    mpi_threads_supported,
    nccl_built,
    rank,
    reducescatter,
    remove_process_set,
    rocm_built,
    shutdown,
    size,
    snapshot,
    start_timeline,
    stop_timeline,
)
from horovod.mxnet.optimizer import DistributedOptimizer, DistributedTrainer


def _leave():
    """At exit: let what is still pending end, without a word about it."""
    _leave_engine()
    # MXNet waits for its engine when the process exits, and the engine for our operations, whoever
    # called init() and whether that was before or after MXNet was imported.
    shutdown()
    try:
        _mx.nd.waitall()
    except _mx.base.MXNetError as error:
        if _OURS not in str(error):
            raise


_OURS = "Horovod has"  # been shut down, or not been initialized: not even begun by then
_atexit.register(_leave)


def _check_has_gpu():
    return _mx.context.num_gpus() > 0
