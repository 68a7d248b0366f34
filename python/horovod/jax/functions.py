# SPDX-License-Identifier: Apache-2.0
"""Start all ranks from the same point: broadcast parameters, optimizer state, Python objects."""

from typing import Any

from horovod.common import objects
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.jax.eager import arrays
from horovod.jax.mpi_ops import broadcast


def broadcast_parameters(
    params: Any, root_rank: int = 0, process_set: ProcessSet = global_process_set
) -> Any:
    """The root's values of a pytree: parameters, the state of an optimizer, keys of jax.random.

    Arrays of JAX can't be changed, so the result is a new tree; use it instead of the old one.
    """
    return broadcast(params, root_rank, "broadcast_parameters", process_set)


broadcast_object, allgather_object = objects.functions_of(arrays, __name__)
