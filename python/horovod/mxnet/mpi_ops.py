# SPDX-License-Identifier: Apache-2.0
"""Collective operations on MXNet's arrays.

allreduce and broadcast are operations of MXNet's engine: the call returns at once, and whatever
uses the array afterwards waits for it, as for any other operation of MXNet. Their out-of-place
forms work in place on a copy. The others, whose results have a size that only the other ranks
know, return when they have their result.

An operation that fails raises MXNetError where its result is waited for: in `wait_to_read()`,
`asnumpy()` or a collective that blocks.

Start reading at `_push` and `_by_rows`.
"""

from collections.abc import Sequence
from typing import Any, TypeAlias

from horovod.common.handles import Handles, member_name, op_name, set_id
from horovod.common.library import native
from horovod.common.names import *  # noqa: F403
from horovod.common.names import (
    Adasum,
    Average,
    global_process_set,
    handle_average_backwards_compatibility,
)
from horovod.common.process_sets import ProcessSet
from horovod.common.util import check_installed_version
from horovod.mxnet import library
from horovod.mxnet.library import mx

check_installed_version("mxnet", mx.__version__)

MXNetError = mx.base.MXNetError
NDArray: TypeAlias = Any  # mx.nd.NDArray, or mx.np.ndarray, which is one

# Calls without a name, by the ranks of the process set: ranks that are not in it do not count them.
_numbers: dict[tuple, int] = {}


class _Handles(Handles):
    """Operations that block, and the life that calls without a name are counted in."""

    __slots__ = ()

    def begin(self) -> None:
        super().begin()
        _numbers.clear()


_handles = _Handles(lambda error: MXNetError(str(error)))


def _full_name(kind_name, name, process_set=global_process_set):
    """The name among all ranks. Calls without one are numbered in the order of the program."""
    prefix = f"horovod_{kind_name}."
    full = op_name(prefix, name)
    if full is not None:
        return full
    members = () if process_set is global_process_set else tuple(process_set.ranks or ())
    number = _numbers.get(members, 0)
    _numbers[members] = number + 1
    return f"{prefix}noname.{number}"


def _names(kind_name, name, tensors, process_set=global_process_set):
    full = _full_name(kind_name, name, process_set)
    return [member_name(full, index, len(tensors)) for index in range(len(tensors))]


def _check_op(op, average):
    op = handle_average_backwards_compatibility(op, average)
    assert op != Adasum, "Adasum is not supported for MXNet"
    return op


def _copy(tensor):
    """A dense array with the same values, outside of any recorded graph."""
    with mx.autograd.pause():
        return tensor.copy()


# ---- in MXNet's engine ----


def allreduce(
    tensor: NDArray,
    average: bool | None = None,
    name: str | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    op: int | None = None,
) -> NDArray:
    """A new array: the average, sum, ... of the arrays of all ranks.

    priority: operations with a higher one are started earlier by MXNet's engine.
    """
    output = _copy(tensor)
    return allreduce_(
        *(output, average, name, priority, prescale_factor, postscale_factor, process_set, op)
    )


def allreduce_(
    tensor: NDArray,
    average: bool | None = None,
    name: str | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    op: int | None = None,
) -> NDArray:
    """allreduce() into the array itself."""
    op = _check_op(op, average)
    scales = (float(prescale_factor), float(postscale_factor))
    names = [_full_name("allreduce", name, process_set)]
    library.push(native.ALLREDUCE, names, set_id(process_set), op, *scales, 0, priority, [tensor])
    return tensor


def grouped_allreduce(
    tensors: Sequence[NDArray],
    average: bool | None = None,
    name: str | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    op: int | None = None,
) -> Any:
    """allreduce() of several arrays at once; all or none of them are executed."""
    if not tensors:
        return tensors
    outputs = [_copy(tensor) for tensor in tensors]
    return grouped_allreduce_(
        *(outputs, average, name, priority, prescale_factor, postscale_factor, process_set, op)
    )


def grouped_allreduce_(
    tensors: Sequence[NDArray],
    average: bool | None = None,
    name: str | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    op: int | None = None,
) -> Any:
    """grouped_allreduce() into the arrays themselves."""
    op = _check_op(op, average)
    if not tensors:
        return tensors
    scales = (float(prescale_factor), float(postscale_factor))
    names = _names("allreduce", name, tensors, process_set)
    library.push(native.ALLREDUCE, names, set_id(process_set), op, *scales, 0, priority, tensors)
    return tensors


def broadcast(
    tensor: NDArray,
    root_rank: int,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> NDArray:
    """A new array: that of the rank `root_rank` (a global rank), on all ranks."""
    return broadcast_(_copy(tensor), root_rank, name, priority, process_set)


def broadcast_(
    tensor: NDArray,
    root_rank: int,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> NDArray:
    """broadcast() into the array itself."""
    names = [_full_name("broadcast", name, process_set)]
    library.push(
        *(native.BROADCAST, names, set_id(process_set), native.SUM, 1.0, 1.0),
        *(root_rank, priority, [tensor]),
    )
    return tensor


# ---- results of unknown size: these block ----


def _make(handle, index, tensor, code):
    """A result as an array of the class of `tensor`, in memory that the core gives away."""
    # MXNet's DLPack knows no bool.
    wire = native.UINT8 if code == native.BOOL else code
    # By MXNet's older rules a dimension of 0 means that it is not known.
    with mx.util.np_shape(True):
        result = mx.nd.from_dlpack(native.result(handle, index, wire))
        if wire != code:
            result = result.astype("bool")
    return result.as_np_ndarray() if isinstance(tensor, mx.np.ndarray) else result


def _by_rows(kind, names, tensors, op, scales, splits, process_set):
    """The results of a group, and the rows that came from each rank."""
    set_number = set_id(process_set)
    for tensor in tensors:
        tensor.wait_to_read()
    views = [library.view(tensor) for tensor in tensors]

    def finish(handle):
        results = [
            _make(handle, index, tensor, views[index][1]) for index, tensor in enumerate(tensors)
        ]
        received = []
        if kind == native.ALLTOALL:
            received = native.result_splits(handle, 0, native.process_set_size(set_number))
        return results, received

    entry = (finish, tensors)
    try:
        if len(tensors) == 1:
            handle = _handles.start(
                *(kind, names[0], set_number, op, *scales, 0, views[0], None, splits, 0, entry)
            )
        else:
            handle = _handles.start_group(
                kind, names, set_number, op, *scales, views, None, 0, entry
            )
    except ValueError as error:
        raise MXNetError(str(error)) from error
    try:
        return _handles.synchronize(handle)
    except BaseException:
        if handle in _handles.entries:
            _handles.abandon([handle])  # interrupted
        raise


def allgather(
    tensor: NDArray,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> NDArray:
    """Concatenates the arrays of all ranks along the first dimension, which may differ."""
    names = [_full_name("allgather", name, process_set)]
    results, _ = _by_rows(
        native.ALLGATHER, names, [tensor], native.SUM, (1.0, 1.0), None, process_set
    )
    return results[0]


def grouped_allgather(
    tensors: Sequence[NDArray],
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """allgather() of several arrays at once; all or none of them are executed."""
    if not tensors:
        return tensors
    names = _names("allgather", name, tensors, process_set)
    results, _ = _by_rows(
        native.ALLGATHER, names, list(tensors), native.SUM, (1.0, 1.0), None, process_set
    )
    return results


def _read_splits(splits):
    if splits is None:
        return None
    if isinstance(splits, mx.nd.NDArray):
        splits = splits.asnumpy()
        if splits.ndim != 1:
            raise MXNetError("alltoall expects a 1D splits tensor")
    return [int(count) for count in splits]


def alltoall(
    tensor: NDArray,
    splits: Any = None,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Sends slices of the first dimension to all ranks and concatenates what they send.

    splits: how many rows go to each rank, a list or an array; None sends equal parts. With splits
    the result is (output, received_splits).
    """
    names = [_full_name("alltoall", name, process_set)]
    results, received = _by_rows(
        *(native.ALLTOALL, names, [tensor], native.SUM, (1.0, 1.0)),
        *(_read_splits(splits), process_set),
    )
    if splits is None:
        return results[0]
    return results[0], _like(tensor, received)


def _like(tensor, received):
    result = mx.nd.array(received, dtype="int32")
    return result.as_np_ndarray() if isinstance(tensor, mx.np.ndarray) else result


def reducescatter(
    tensor: NDArray,
    op: int = Average,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> NDArray:
    """Reduces the arrays of all ranks and gives each rank its share of the rows."""
    assert op != Adasum, "Adasum is not supported for MXNet"
    if tensor.shape == ():
        raise ValueError("reducescatter does not support scalar inputs")
    names = [_full_name("reducescatter", name, process_set)]
    scales = (float(prescale_factor), float(postscale_factor))
    return _by_rows(native.REDUCESCATTER, names, [tensor], op, scales, None, process_set)[0][0]


def grouped_reducescatter(
    tensors: Sequence[NDArray],
    op: int = Average,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Any:
    """reducescatter() of several arrays at once; all or none of them are executed."""
    assert op != Adasum, "Adasum is not supported for MXNet"
    if not tensors:
        return tensors
    if any(tensor.shape == () for tensor in tensors):
        # The spelling is the one that scripts know.
        raise ValueError("groued_reducescatter does not support scalar inputs")
    names = _names("reducescatter", name, tensors, process_set)
    scales = (float(prescale_factor), float(postscale_factor))
    return _by_rows(native.REDUCESCATTER, names, list(tensors), op, scales, None, process_set)[0]
