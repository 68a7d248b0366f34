# SPDX-License-Identifier: Apache-2.0
"""Horovod for NumPy arrays, without any framework: `import horovod.numpy as hvd`."""

from horovod.common.util import missing_framework

try:
    import numpy as _numpy  # noqa: F401
except ModuleNotFoundError as error:
    raise missing_framework("horovod.numpy", "NumPy", "numpy", error) from error

from horovod.common.exceptions import HorovodInternalError
from horovod.common.names import *  # noqa: F403
from horovod.numpy.mpi_ops import (
    allgather,
    allgather_async,
    allgather_object,
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
    broadcast_object,
    grouped_allreduce,
    grouped_allreduce_async,
    join,
    poll,
    reducescatter,
    reducescatter_async,
    synchronize,
)
