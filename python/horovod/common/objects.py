# SPDX-License-Identifier: Apache-2.0
"""Python objects between ranks as NumPy arrays of bytes, for packages whose arrays are in reach."""

from collections.abc import Callable
from typing import Any

import cloudpickle
import numpy as np

from horovod.common.arrays import Arrays
from horovod.common.handles import op_name, set_id
from horovod.common.library import native
from horovod.common.process_sets import ProcessSet, global_process_set


def functions_of(arrays: Arrays, module: str) -> tuple[Callable[..., Any], Callable[..., list]]:
    """broadcast_object() and allgather_object() for the package that has these arrays."""

    def broadcast_object_(
        obj: Any,
        root_rank: int = 0,
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
    ) -> Any:
        """The root's object on all ranks; anything that cloudpickle can carry."""
        return broadcast_object(arrays, obj, root_rank, name, set_id(process_set))

    def allgather_object_(
        obj: Any, name: str | None = None, process_set: ProcessSet = global_process_set
    ) -> list:
        """A list of the objects of all ranks, by rank in the set."""
        return allgather_object(arrays, obj, name, set_id(process_set))

    for function in (broadcast_object_, allgather_object_):
        function.__name__ = function.__qualname__ = function.__name__.rstrip("_")
        function.__module__ = module
    return broadcast_object_, allgather_object_


def broadcast_object(
    arrays: Arrays, obj: Any, root_rank: int, name: str | None, process_set_id: int = 0
) -> Any:
    """The root's object on all ranks; anything that cloudpickle can carry."""
    name = name or "broadcast_object"

    def broadcast(array, part):
        full = op_name("broadcast.", name + part)
        (result,) = arrays.same_shape(
            native.BROADCAST, [array], full, root=root_rank, process_set_id=process_set_id
        )
        return result

    is_root = native.rank() == root_rank
    data = np.frombuffer(cloudpickle.dumps(obj) if is_root else b"", dtype=np.uint8)
    (count,) = broadcast(np.array([data.size], dtype=np.int64), ".sz")
    received = broadcast(data if is_root else np.zeros(count, dtype=np.uint8), ".t")
    return obj if is_root else cloudpickle.loads(received.tobytes())


def allgather_object(
    arrays: Arrays, obj: Any, name: str | None, process_set_id: int = 0
) -> list[Any]:
    """The objects of all ranks as a list, by rank in the set."""
    name = name or "allgather_object"

    def allgather(array, part):
        full = op_name("allgather.", name + part)
        results, _ = arrays.by_rows(native.ALLGATHER, [array], full, process_set_id=process_set_id)
        return results[0]

    data = np.frombuffer(cloudpickle.dumps(obj), dtype=np.uint8)
    sizes = allgather(np.array([data.size], dtype=np.int64), ".sz")
    gathered = allgather(data, ".t")
    ends = np.cumsum(sizes)
    return [
        cloudpickle.loads(gathered[end - size : end].tobytes())
        for size, end in zip(sizes, ends, strict=True)
    ]
