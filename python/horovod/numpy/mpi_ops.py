# SPDX-License-Identifier: Apache-2.0
"""Collective operations on NumPy arrays.

Arguments may be arrays, numbers, lists, and objects of other libraries that offer their host memory
by `__array_interface__` or DLPack; results are NumPy arrays. Names are those of horovod.torch, so
ranks with PyTorch and ranks with NumPy can work on one tensor.

Each operation has a form that waits and one that returns a handle for `poll` and `synchronize`.
Start reading at `_start_same_shape` and `_start_by_rows`.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from horovod.common import objects
from horovod.common.arrays import NO_SCALES, Arrays, dense
from horovod.common.exceptions import HorovodInternalError
from horovod.common.handles import op_name, set_id
from horovod.common.library import native
from horovod.common.names import *  # noqa: F403
from horovod.common.names import Average, global_process_set
from horovod.common.process_sets import ProcessSet

_arrays = Arrays(HorovodInternalError)
poll = _arrays.poll
synchronize = _arrays.synchronize


# ---- arrays ----


def _read(array: Any) -> np.ndarray:
    """The values of whatever holds an array."""
    has_own_way = hasattr(array, "__array_interface__") or hasattr(array, "__array__")
    if hasattr(array, "__dlpack__") and not has_own_way:
        return dense(np.from_dlpack(array))
    return dense(np.asarray(array))


def _written(array: Any) -> np.ndarray:
    """The memory of an array that is to be written to."""
    if not hasattr(array, "__array_interface__") or np.isscalar(array):
        raise TypeError(
            f"an operation in place needs a NumPy array, or an object with __array_interface__; "
            f"got {type(array).__name__}"
        )
    memory = np.asarray(array)
    if not memory.flags.writeable:
        raise ValueError("an operation in place needs an array that can be written to")
    return memory


def _start_same_shape(kind, prefix, arrays, name, op, scales, root, process_set, finish):
    inputs = [_read(array) for array in arrays]
    outputs = [np.empty_like(array) for array in inputs]
    return _arrays.start_same_shape(
        *(kind, inputs, outputs, op_name(prefix, name), op, scales, root),
        *(set_id(process_set), finish),
    )


def _start_in_place(kind, prefix, array, name, op, scales, root, process_set):
    memory = _written(array)
    place = dense(memory)

    def finish(outputs):
        if place is not memory and not np.shares_memory(place, memory):
            memory[...] = place
        return array

    return _arrays.start_same_shape(
        *(kind, [place], [place], op_name(prefix, name), op, scales, root),
        *(set_id(process_set), finish),
    )


def _only(outputs):
    return outputs[0]


def _start_by_rows(kind, prefix, array, name, op, scales, splits, process_set, finish):
    return _arrays.start_by_rows(
        *(kind, _read(array), op_name(prefix, name), op, scales, splits),
        *(set_id(process_set), finish),
    )


def _output(output, received):
    return output


def _output_and_received(output, received):
    return output, np.array(received, dtype=np.int32)


def _wait(handle: int) -> Any:
    return _arrays.wait_for([handle])[0]


# ---- allreduce ----


def allreduce_async(
    array: Any,
    name: str | None = None,
    op: int = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start an allreduce; `synchronize` gives the new array."""
    scales = (prescale_factor, postscale_factor)
    where = (native.ALLREDUCE, "allreduce.")
    return _start_same_shape(*where, [array], name, op, scales, 0, process_set, _only)


def allreduce(
    array: Any,
    name: str | None = None,
    op: int = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> np.ndarray:
    """A new array: the average, sum, minimum, ... of the arrays of all ranks."""
    return _wait(allreduce_async(array, name, op, prescale_factor, postscale_factor, process_set))


def allreduce_async_(
    array: Any,
    name: str | None = None,
    op: int = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start an allreduce into the array itself; don't touch it before `synchronize`."""
    scales = (prescale_factor, postscale_factor)
    return _start_in_place(native.ALLREDUCE, "allreduce.", array, name, op, scales, 0, process_set)


def allreduce_(
    array: Any,
    name: str | None = None,
    op: int = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """allreduce() into the array itself, which is returned."""
    return _wait(allreduce_async_(array, name, op, prescale_factor, postscale_factor, process_set))


def grouped_allreduce_async(
    arrays: Sequence[Any],
    name: str | None = None,
    op: int = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start an allreduce of several arrays; `synchronize` gives the list of new ones."""
    scales = (prescale_factor, postscale_factor)
    arrays = list(arrays)
    if not arrays:
        raise ValueError("grouped_allreduce needs at least one array")
    if len(arrays) == 1 and name:
        name += "_1of1"  # as other packages name a group of one
    where = (native.ALLREDUCE, "grouped_allreduce.")
    return _start_same_shape(*where, arrays, name, op, scales, 0, process_set, None)


def grouped_allreduce(
    arrays: Sequence[Any],
    name: str | None = None,
    op: int = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[np.ndarray]:
    """allreduce() of several arrays at once; all or none of them are executed."""
    return _wait(
        grouped_allreduce_async(arrays, name, op, prescale_factor, postscale_factor, process_set)
    )


# ---- broadcast ----


def broadcast_async(
    array: Any,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start a broadcast; `synchronize` gives the new array."""
    where = (native.BROADCAST, "broadcast.")
    return _start_same_shape(
        *where, [array], name, native.SUM, NO_SCALES, root_rank, process_set, _only
    )


def broadcast(
    array: Any,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> np.ndarray:
    """A new array: that of the rank `root_rank` (a global rank), on all ranks."""
    return _wait(broadcast_async(array, root_rank, name, process_set))


def broadcast_async_(
    array: Any,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start a broadcast into the array itself; don't touch it before `synchronize`."""
    return _start_in_place(
        *(native.BROADCAST, "broadcast.", array, name, native.SUM, NO_SCALES),
        *(root_rank, process_set),
    )


def broadcast_(
    array: Any,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """broadcast() into the array itself, which is returned."""
    return _wait(broadcast_async_(array, root_rank, name, process_set))


# ---- results of unknown size ----


def allgather_async(
    array: Any, name: str | None = None, process_set: ProcessSet = global_process_set
) -> int:
    """Start an allgather; `synchronize` gives the new array."""
    where = (native.ALLGATHER, "allgather.", array, name)
    return _start_by_rows(*where, native.SUM, NO_SCALES, None, process_set, _output)


def allgather(
    array: Any, name: str | None = None, process_set: ProcessSet = global_process_set
) -> np.ndarray:
    """The arrays of all ranks one after the other; their first dimensions may differ."""
    return _wait(allgather_async(array, name, process_set))


def _read_splits(splits):
    if splits is None:
        return None
    splits = np.asarray(splits)
    if splits.ndim != 1:
        raise ValueError("alltoall expects a 1D splits tensor")
    if splits.dtype.kind not in "iu":
        raise ValueError("alltoall expects splits to contain 32-bit integer elements.")
    return [int(count) for count in splits]


def alltoall_async(
    array: Any,
    splits: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start an alltoall; `synchronize` gives what alltoall() returns."""
    finish = _output if splits is None else _output_and_received
    where = (native.ALLTOALL, "alltoall.", array, name, native.SUM, NO_SCALES)
    return _start_by_rows(*where, _read_splits(splits), process_set, finish)


def alltoall(
    array: Any,
    splits: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Sends rows to all ranks and puts the rows that come from them one after the other.

    splits: how many rows go to each rank; None sends equal parts. With splits the result is
    (output, received_splits).
    """
    return _wait(alltoall_async(array, splits, name, process_set))


def reducescatter_async(
    array: Any,
    name: str | None = None,
    op: int = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start a reducescatter; `synchronize` gives the new array."""
    scales = (prescale_factor, postscale_factor)
    where = (native.REDUCESCATTER, "reducescatter.", array, name)
    return _start_by_rows(*where, op, scales, None, process_set, _output)


def reducescatter(
    array: Any,
    name: str | None = None,
    op: int = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> np.ndarray:
    """Reduces the arrays of all ranks and gives each rank its share of the rows."""
    return _wait(
        reducescatter_async(array, name, op, prescale_factor, postscale_factor, process_set)
    )


# ---- without arrays ----


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Returns when every rank of the set is here."""
    _arrays.without_tensor(native.BARRIER, set_id(process_set))


def join() -> int:
    """This rank has no more data: others go on without it. Returns, when all have joined, the last.

    Until then an allreduce of the others counts this rank with zeros.
    """
    return _arrays.without_tensor(native.JOIN)


broadcast_object, allgather_object = objects.functions_of(_arrays, __name__)
