# SPDX-License-Identifier: Apache-2.0
"""Horovod for PyTorch: `import horovod.torch as hvd`."""

from horovod.common import basics as _basics_module
from horovod.common import handles as _handles_module
from horovod.common.exceptions import HorovodInternalError
from horovod.common.util import check_extension, missing_framework

try:
    import torch as _torch
except ModuleNotFoundError as error:
    raise missing_framework("horovod.torch", "PyTorch", "torch", error) from error

from horovod.torch import (
    arena,
    dynamo,
    elastic,
    functions,
    mpi_lib_v2,
    mpi_ops,
    optimizer,
    sync_batch_norm,
)
from horovod.torch.compression import Compression
from horovod.torch.functions import (
    allgather_object,
    broadcast_object,
    broadcast_optimizer_state,
    broadcast_parameters,
)
from horovod.torch.mpi_ops import (
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
    allgather_async,
    allreduce,
    allreduce_,
    allreduce_async,
    allreduce_async_,
    alltoall,
    alltoall_async,
    barrier,
    broadcast,
    broadcast_,
    broadcast_async,
    broadcast_async_,
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
    grouped_allgather_async,
    grouped_allreduce,
    grouped_allreduce_,
    grouped_allreduce_async,
    grouped_allreduce_async_,
    grouped_reducescatter,
    grouped_reducescatter_async,
    init,
    is_homogeneous,
    is_initialized,
    join,
    local_rank,
    local_size,
    metrics,
    mpi_built,
    mpi_enabled,
    mpi_threads_supported,
    nccl_built,
    poll,
    rank,
    reducescatter,
    reducescatter_async,
    remove_process_set,
    rocm_built,
    shutdown,
    size,
    snapshot,
    sparse_allreduce_async,
    start_timeline,
    stop_timeline,
    synchronize,
)
from horovod.torch.optimizer import DistributedOptimizer
from horovod.torch.sync_batch_norm import SyncBatchNorm

_MPI_LIB_AVAILABLE = True

for _module in (_basics_module, _handles_module, mpi_ops, functions, arena, optimizer):
    dynamo.leave_alone(_module)


def _check_has_gpu():
    import torch

    return torch.cuda.is_available()
