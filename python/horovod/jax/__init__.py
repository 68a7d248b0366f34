# SPDX-License-Identifier: Apache-2.0
"""Horovod for JAX: collectives on arrays and pytrees, eager and inside jit, grad, vmap and scan.

    import horovod.jax as hvd
    hvd.init()
    params = hvd.broadcast_parameters(params)
    optimizer = hvd.DistributedOptimizer(optax.adam(1e-3 * hvd.size()))
    ...

One process has one device; start as many as there are devices. See docs/jax.md.
"""

from typing import Any

from horovod.common.names import *  # noqa: F403
from horovod.common.util import check_extension, check_installed_version, missing_framework

check_extension("horovod.jax", "HOROVOD_WITH_JAX", __file__, "mpi_lib")

try:
    import jax as _jax  # noqa: E402
except ModuleNotFoundError as error:
    raise missing_framework("horovod.jax", "JAX", "jax", error) from error

check_installed_version("jax", _jax.__version__)

from horovod.jax import elastic  # noqa: E402
from horovod.jax.compression import Compression, Compressor  # noqa: E402
from horovod.jax.functions import (  # noqa: E402
    allgather_object,
    broadcast_object,
    broadcast_parameters,
)
from horovod.jax.gradients import DistributedOptimizer, grad, value_and_grad  # noqa: E402
from horovod.jax.mpi_ops import (  # noqa: E402
    _check_has_gpu,
    allgather,
    allreduce,
    alltoall,
    barrier,
    broadcast,
    grouped_allgather,
    grouped_allreduce,
    grouped_reducescatter,
    init,
    join,
    reducescatter,
    shutdown,
)


def __getattr__(name: str) -> Any:
    # Flax need not be there.
    if name == "SyncBatchNorm":
        from horovod.jax.sync_batch_norm import SyncBatchNorm

        return SyncBatchNorm
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
