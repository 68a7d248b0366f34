# SPDX-License-Identifier: Apache-2.0
"""Collective operations on PyTorch tensors.

A tensor reaches the core as a pointer; the native module reads pointer, dtype and shape itself.
`_handles` (common/handles.py) keeps the tensors of an operation alive until it has ended. The
synchronous forms go through autograd only when a gradient is wanted.

Start reading at `_start_into`; everything else says what to start and what to do with the result.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from horovod.common.basics import HorovodBasics as _HorovodBasics  # noqa: F401 - scripts look at it
from horovod.common.compression import Compressor, wire_flag
from horovod.common.exceptions import HorovodInternalError
from horovod.common.handles import Handles, group_names, op_name, set_id
from horovod.common.library import native
from horovod.common.names import *  # noqa: F403
from horovod.common.names import (
    Adasum,
    Average,
    Sum,
    global_process_set,
    handle_average_backwards_compatibility,
    rank,
    size,
)
from horovod.common.names import basics as _basics
from horovod.common.process_sets import ProcessSet
from horovod.common.process_sets import _setup as _setup_process_sets
from horovod.common.util import check_installed_version, num_rank_is_power_2
from horovod.torch.compression import Compression
from horovod.torch.turns import next_era

check_installed_version("pytorch", torch.__version__)

_NULL = ""

_DTYPES = {
    torch.uint8: native.UINT8,
    torch.int8: native.INT8,
    torch.int16: native.INT16,
    torch.int32: native.INT32,
    torch.int64: native.INT64,
    torch.float16: native.FLOAT16,
    torch.float32: native.FLOAT32,
    torch.float64: native.FLOAT64,
    torch.bool: native.BOOL,
    torch.bfloat16: native.BFLOAT16,
}
if hasattr(torch, "uint16"):
    _DTYPES[torch.uint16] = native.UINT16

_TensorError = native.TensorError
_from_dlpack = torch.utils.dlpack.from_dlpack

# PyTorch without the C table gives us addresses instead.
_HAS_EXCHANGE = native.register_exchange(torch.Tensor)

_CONVERTED = object()  # in place of what decompress() needs: the core converts
_HOLD = native.OP_NAME_HOLD
_WAITED = native.OP_NAME_HOLD | native.OP_WAITED

_handles = Handles(HorovodInternalError)
_handle_map = _handles.entries  # for programs that look at it
_start = _handles.start
poll = _handles.poll
synchronize = _handles.synchronize


# ---- life ----


def init(*args: Any, **kwargs: Any) -> None:  # type: ignore[no-redef]
    """Start Horovod; see HorovodBasics.init()."""
    _handles.begin()
    _basics.init(*args, **kwargs)
    _setup_process_sets(_basics)


def shutdown(*args: Any, **kwargs: Any) -> None:  # type: ignore[no-redef]
    """Stop Horovod on all ranks; pending operations fail."""
    from horovod.torch import arena

    arena.release_all()
    next_era()
    _basics.shutdown(*args, **kwargs)


# ---- handing tensors over ----


def _unsupported(tensor):
    return ValueError(f"Tensor type {tensor.type()} is not supported.")


def _stand_in(tensor):
    """A dense tensor in host memory with the same values; ValueError if there can't be one."""
    if tensor.layout is not torch.strided or tensor.dtype not in _DTYPES:
        raise _unsupported(tensor)
    if tensor.is_meta:
        raise ValueError("Tensor on device meta has no values.")
    return tensor.detach().cpu().resolve_neg().contiguous()


def _is_ready(tensor):
    """Can the core read and write it where it lies?"""
    return (
        tensor.layout is torch.strided
        and tensor.device.type == "cpu"
        and tensor.is_contiguous()
        and tensor.dtype in _DTYPES
        and not tensor.is_neg()
    )


def _view(tensor):
    """What the native module reads of a tensor."""
    if _HAS_EXCHANGE:
        return tensor
    if not _is_ready(tensor):
        raise _TensorError("Tensor is not dense host memory.")
    return (tensor.data_ptr(), _DTYPES[tensor.dtype], tuple(tensor.shape))


def _start_into(
    kind, prefix, name, process_set, op, prescale, postscale, root, tensor, output, flags
):
    """Start an operation whose result has its place already: `output`, which may be `tensor`."""
    if tensor is None:
        raise AttributeError("'NoneType' object has no attribute 'new'")
    full = None
    if name:
        try:
            full = prefix + name if name[0] != "/" else name[1:]
        except TypeError:
            op_name(prefix, name)  # it knows what to raise
    process_set_id = process_set.process_set_id
    if process_set_id is None:
        process_set_id = set_id(process_set)
    try:
        source, place = tensor, output
        if not _HAS_EXCHANGE:
            source, place = _view(tensor), _view(output)
        return _start(
            kind,
            full,
            process_set_id,
            op,
            prescale,
            postscale,
            root,
            source,
            place,
            None,
            flags,
            (None, tensor, output),
        )
    except _TensorError:
        copy = _stand_in(tensor)
        if copy is tensor and _is_ready(output):
            raise
    target = output if output is not tensor and _is_ready(output) else copy
    finish = None if target is output else lambda handle: _copy_into(output, target)
    return _start(
        *(kind, full, process_set_id, op, prescale, postscale, root),
        *(_view(copy), _view(target), None, flags, (finish, tensor, copy, target, output)),
    )


def _start_result(
    kind, prefix, name, process_set, op, prescale, postscale, tensor, splits, flags, finish=None
):
    """Start an operation whose result the core makes; `synchronize` gives it where `tensor` is."""
    if tensor is None:
        raise AttributeError("'NoneType' object has no attribute 'new'")
    arguments = (kind, op_name(prefix, name), set_id(process_set), op, prescale, postscale, 0)
    if finish is None:

        def finish(handle):
            return _same_place(_take_result(handle, 0, tensor.dtype), tensor)

    try:
        return _start(*arguments, _view(tensor), None, splits, flags, (finish, tensor))
    except _TensorError:
        source = _stand_in(tensor)
    return _start(*arguments, _view(source), None, splits, flags, (finish, tensor, source))


def _start_without_tensor(kind, process_set, flags, finish=None):
    """Start a join or a barrier."""
    return _start(
        *(kind, None, set_id(process_set), Sum, 1.0, 1.0, 0, None, None, None, flags),
        (finish, None),
    )


def _start_group(
    kind, prefix, name, process_set, op, prescale, postscale, inputs, outputs, flags, entry
):
    return _handles.start_group(
        *(kind, group_names(prefix, name, len(inputs)), set_id(process_set)),
        *(op, prescale, postscale, list(map(_view, inputs))),
        *(None if outputs is None else list(map(_view, outputs)), flags, entry),
    )


def _copy_into(output, target):
    with torch.no_grad():
        return output.copy_(target)


def _same_place(copy, tensor):
    """A result made in host memory, where the input lives."""
    return copy if tensor.device.type == "cpu" else copy.to(tensor.device)


def _take_result(handle, index, dtype):
    """A result whose size only the core knew, without a copy."""
    return _from_dlpack(native.result(handle, index, _DTYPES[dtype]))


# ---- allreduce ----


def _check_adasum(op, process_set):
    if op != Adasum:
        return
    count = size()
    if process_set is not global_process_set and process_set.process_set_id != 0:
        raise NotImplementedError("Adasum does not support non-global process sets yet.")
    if not num_rank_is_power_2(count):
        raise NotImplementedError("Running Adasum with non-power of 2 ranks is not supported yet.")


def _allreduce_async(
    tensor, output, name, op, prescale_factor, postscale_factor, process_set, flags=_HOLD
):
    if op == Adasum:
        _check_adasum(op, process_set)
    return _start_into(
        native.ALLREDUCE,
        "allreduce.",
        name,
        process_set,
        op,
        prescale_factor,
        postscale_factor,
        0,
        tensor,
        output,
        flags,
    )


def _new_like(tensor):
    """Memory for a result: dense, whatever the input's strides."""
    return torch.empty_like(tensor, memory_format=torch.contiguous_format, requires_grad=False)


def allreduce_async(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start an allreduce into a new tensor; returns a handle for `poll` and `synchronize`."""
    op = handle_average_backwards_compatibility(op, average)
    output = _new_output(tensor)
    return _allreduce_async(
        tensor, output, name, op, prescale_factor, postscale_factor, process_set
    )


def _new_output(tensor):
    if tensor.layout is not torch.strided:
        raise _unsupported(tensor)
    return _new_like(tensor)


class _WireName(NamedTuple):
    """A name, and the native flag of the type in which float32 travels, for forward()."""

    wire: int
    name: str | None


def _split_name(name):
    return name if isinstance(name, _WireName) else (0, name)


class HorovodAllreduce(torch.autograd.Function):
    """Allreduce whose gradient is the allreduce of the gradient."""

    @staticmethod
    def forward(ctx, tensor, average, name, op, prescale_factor, postscale_factor, process_set):
        wire, name = _split_name(name)
        op = handle_average_backwards_compatibility(op, average)
        ctx.arguments = (op, prescale_factor, postscale_factor, process_set, wire)
        output = _new_output(tensor)
        handle = _allreduce_async(
            tensor, output, name, op, prescale_factor, postscale_factor, process_set, _WAITED | wire
        )
        return synchronize(handle)

    @staticmethod
    def backward(ctx, grad_output):
        reduced = _allreduce(grad_output.contiguous(), None, *ctx.arguments)
        return reduced, None, None, None, None, None, None


def allreduce(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Reduce a tensor over all ranks of the set; the default is the average.

    The input is left alone. Gradients flow: the gradient is allreduced in the same way.
    """
    if average is not None or op is None:
        op = handle_average_backwards_compatibility(op, average)
    arguments = (name, op, prescale_factor, postscale_factor, process_set)
    if compression is Compression.none:
        return _allreduce(tensor, *arguments, 0)
    wire = wire_flag(compression, op)
    if wire and tensor.dtype is torch.float32:
        return _allreduce(tensor, *arguments, wire)
    compressed, ctx = compression.compress(tensor)
    return compression.decompress(_allreduce(compressed, *arguments, 0), ctx)


def _allreduce(tensor, name, op, prescale_factor, postscale_factor, process_set, wire):
    """wire: the native flag of the type in which float32 travels; 0: its own."""
    if tensor.requires_grad and torch.is_grad_enabled():
        full_name = _WireName(wire, name) if wire else name
        return HorovodAllreduce.apply(
            tensor, None, full_name, op, prescale_factor, postscale_factor, process_set
        )
    return synchronize(
        _allreduce_async(
            tensor,
            _new_output(tensor),
            name,
            op,
            prescale_factor,
            postscale_factor,
            process_set,
            _WAITED | wire,
        )
    )


def allreduce_async_(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start an allreduce in place."""
    if average is not None or op is None:
        op = handle_average_backwards_compatibility(op, average)
    return _allreduce_async(
        tensor, tensor, name, op, prescale_factor, postscale_factor, process_set
    )


def allreduce_(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Allreduce in place; returns the same tensor."""
    if average is not None or op is None:
        op = handle_average_backwards_compatibility(op, average)
    return synchronize(
        _allreduce_async(
            tensor, tensor, name, op, prescale_factor, postscale_factor, process_set, _WAITED
        )
    )


# ---- grouped allreduce ----


def _stand_ins(tensors):
    return [tensor if _is_ready(tensor) else _stand_in(tensor) for tensor in tensors]


def _check_device(tensors):
    if len({tensor.device for tensor in tensors}) > 1:
        raise HorovodInternalError(RuntimeError("Tensors in list must be on same device."))


def _grouped_allreduce_async(
    tensors, outputs, name, op, prescale_factor, postscale_factor, process_set, flags=_HOLD
):
    if op == Adasum:
        _check_adasum(op, process_set)
    tensors[0]  # noqa: B018 - an empty group is an IndexError
    arguments = (native.ALLREDUCE, "grouped_allreduce.", name, process_set, op)
    arguments = (*arguments, prescale_factor, postscale_factor)
    inputs, targets, results = list(tensors), list(outputs), tuple(outputs)
    try:
        return _start_group(*arguments, inputs, targets, flags, (None, inputs, targets, results))
    except _TensorError:
        _check_device(tensors)
    inputs = _stand_ins(tensors)
    targets = [
        output if output is not tensor and _is_ready(output) else copy
        for tensor, output, copy in zip(tensors, results, inputs, strict=True)
    ]

    def finish(handle):
        for output, target in zip(results, targets, strict=True):
            if output is not target:
                output.copy_(target)
        return results

    return _start_group(*arguments, inputs, targets, flags, (finish, inputs, targets, results))


def grouped_allreduce_async(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start allreduces that become ready together; one handle for all."""
    op = handle_average_backwards_compatibility(op, average)
    outputs = [_new_output(tensor) for tensor in tensors]
    return _grouped_allreduce_async(
        tensors, outputs, name, op, prescale_factor, postscale_factor, process_set
    )


class HorovodGroupedAllreduce(torch.autograd.Function):
    """Grouped allreduce whose gradient is the grouped allreduce of the gradients."""

    @staticmethod
    def forward(ctx, average, name, op, prescale_factor, postscale_factor, process_set, *tensors):
        wire, name = _split_name(name)
        op = handle_average_backwards_compatibility(op, average)
        ctx.arguments = (op, prescale_factor, postscale_factor, process_set, wire)
        outputs = [_new_output(tensor) for tensor in tensors]
        handle = _grouped_allreduce_async(
            list(tensors),
            outputs,
            name,
            op,
            prescale_factor,
            postscale_factor,
            process_set,
            _WAITED | wire,
        )
        return synchronize(handle)

    @staticmethod
    def backward(ctx, *grad_outputs):
        *arguments, wire = ctx.arguments
        reduced = HorovodGroupedAllreduce.apply(
            *(None, _WireName(wire, None), *arguments),
            *(grad.contiguous() for grad in grad_outputs),
        )
        return (None, None, None, None, None, None, *reduced)


def grouped_allreduce(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[torch.Tensor]:
    """Allreduce a list of tensors as one unit; returns a list."""
    op = handle_average_backwards_compatibility(op, average)
    wire = wire_flag(compression, op)
    pairs = [
        (tensor, _CONVERTED)
        if wire and tensor.dtype is torch.float32
        else compression.compress(tensor)
        for tensor in tensors
    ]
    if not pairs:
        raise ValueError("not enough values to unpack (expected 2, got 0)")
    compressed = [tensor for tensor, _ in pairs]
    full_name = _WireName(wire, name) if wire else name
    reduced = HorovodGroupedAllreduce.apply(
        None, full_name, op, prescale_factor, postscale_factor, process_set, *compressed
    )
    return [
        tensor if ctx is _CONVERTED else compression.decompress(tensor, ctx)
        for tensor, (_, ctx) in zip(reduced, pairs, strict=True)
    ]


def grouped_allreduce_async_(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start a grouped allreduce in place."""
    op = handle_average_backwards_compatibility(op, average)
    return _grouped_allreduce_async(
        tensors, tensors, name, op, prescale_factor, postscale_factor, process_set
    )


def grouped_allreduce_(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> tuple[torch.Tensor, ...]:
    """Grouped allreduce in place; returns a tuple of the same tensors."""
    op = handle_average_backwards_compatibility(op, average)
    return synchronize(
        _grouped_allreduce_async(
            tensors, tensors, name, op, prescale_factor, postscale_factor, process_set, _WAITED
        )
    )


# ---- sparse allreduce ----


def sparse_allreduce_async(
    tensor: torch.Tensor, name: str, op: int, process_set: ProcessSet = global_process_set
) -> Callable[[], torch.Tensor]:
    """Start an allreduce of a sparse COO tensor; call what it returns to get the result.

    Rows that occur twice are summed first, then indices and values of all ranks are gathered.
    """
    tensor = tensor.coalesce()
    indices = tensor.indices().transpose(0, 1).contiguous()
    values_handle = allgather_async(
        tensor.values().contiguous(), name=f"{name}.values", process_set=process_set
    )
    indices_handle = allgather_async(indices, name=f"{name}.indices", process_set=process_set)

    def finish():
        values = synchronize(values_handle)
        indices = synchronize(indices_handle)
        if op == Average:
            values = values.div(process_set.size())
        if indices.dim() == 0 or values.dim() == 0:
            return torch.zeros_like(tensor)
        # Indices that a sparse tensor held need no check.
        with torch.sparse.check_sparse_tensor_invariants(enable=False):
            return torch.sparse_coo_tensor(indices.transpose(0, 1), values, tensor.size())

    finish.handles = [values_handle, indices_handle]  # type: ignore[attr-defined]
    return finish


# ---- allgather ----


def _allgather_async(tensor, output, name, process_set, flags=_HOLD):
    """`output` is accepted for the sake of old callers; the result is a new tensor."""
    return _start_result(
        native.ALLGATHER, "allgather.", name, process_set, Sum, 1.0, 1.0, tensor, None, flags
    )


def allgather_async(
    tensor: torch.Tensor, name: str | None = None, process_set: ProcessSet = global_process_set
) -> int:
    """Start an allgather: the ranks' tensors one behind the other along the first dimension."""
    return _allgather_async(tensor, None, name, process_set)


class HorovodAllgather(torch.autograd.Function):
    """Allgather; the gradient is this rank's part of the averaged gradient."""

    @staticmethod
    def forward(ctx, tensor, name, process_set):
        ctx.rows = tensor.shape[0]
        ctx.process_set = process_set
        return synchronize(_allgather_async(tensor, None, name, process_set, _WAITED))

    @staticmethod
    def backward(ctx, grad_output):
        reduced = allreduce(grad_output.contiguous(), op=Average, process_set=ctx.process_set)
        rows = allgather(torch.tensor([ctx.rows]), process_set=ctx.process_set)
        start = int(rows[: ctx.process_set.rank()].sum())
        return reduced.narrow(0, start, ctx.rows), None, None


def allgather(
    tensor: torch.Tensor, name: str | None = None, process_set: ProcessSet = global_process_set
) -> torch.Tensor:
    """Concatenate the ranks' tensors along the first dimension, in which they may differ."""
    if tensor.dim() == 0:
        raise IndexError("tuple index out of range")
    if tensor.requires_grad and torch.is_grad_enabled():
        return HorovodAllgather.apply(tensor, name, process_set)
    return synchronize(_allgather_async(tensor, None, name, process_set, _WAITED))


def _grouped_result_async(kind, prefix, tensors, name, op, scales, process_set, flags):
    """A group whose results are made by the core: allgather and reducescatter."""
    tensors[0]  # noqa: B018 - an empty group is an IndexError
    tensors = list(tensors)

    def finish(handle):
        return tuple(
            _same_place(_take_result(handle, i, tensor.dtype), tensor)
            for i, tensor in enumerate(tensors)
        )

    arguments = (kind, prefix, name, process_set, op, *scales)
    try:
        return _start_group(*arguments, tensors, None, flags, (finish, tensors))
    except _TensorError:
        _check_device(tensors)
    sources = _stand_ins(tensors)
    return _start_group(*arguments, sources, None, flags, (finish, tensors, sources))


def _grouped_allgather_async(tensors, outputs, name, process_set, flags=_HOLD):
    return _grouped_result_async(
        native.ALLGATHER,
        "grouped_allgather.",
        tensors,
        name,
        Sum,
        (1.0, 1.0),
        process_set,
        flags,
    )


def grouped_allgather_async(
    tensors: Sequence[torch.Tensor],
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start allgathers that become ready together; one handle for all."""
    return _grouped_allgather_async(tensors, None, name, process_set)


class HorovodGroupedAllgather(torch.autograd.Function):
    """Grouped allgather; gradients as for allgather."""

    @staticmethod
    def forward(ctx, name, process_set, *tensors):
        ctx.rows = [tensor.shape[0] for tensor in tensors]
        ctx.process_set = process_set
        return synchronize(
            _grouped_allgather_async(list(tensors), None, name, process_set, _WAITED)
        )

    @staticmethod
    def backward(ctx, *grad_outputs):
        process_set = ctx.process_set
        reduced = grouped_allreduce(
            [grad.contiguous() for grad in grad_outputs], op=Average, process_set=process_set
        )
        rows = allgather(torch.tensor([ctx.rows]), process_set=process_set)
        starts = rows[: process_set.rank()].sum(dim=0).tolist()
        parts = [
            grad.narrow(0, start, count)
            for grad, start, count in zip(reduced, starts, ctx.rows, strict=True)
        ]
        return (None, None, *parts)


def grouped_allgather(
    tensors: Sequence[torch.Tensor],
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> tuple[torch.Tensor, ...]:
    """Allgather a list of tensors as one unit; returns a tuple."""
    tensors = list(tensors)
    tensors[0]  # noqa: B018
    if any(tensor.dim() == 0 for tensor in tensors):
        raise IndexError("tuple index out of range")
    return HorovodGroupedAllgather.apply(name, process_set, *tensors)


# ---- broadcast ----


def _broadcast_async(tensor, output, root_rank, name, process_set, flags=_HOLD):
    where = (native.BROADCAST, "broadcast.", name, process_set)
    return _start_into(*where, Sum, 1.0, 1.0, root_rank, tensor, output, flags)


def broadcast_async(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start a broadcast into a new tensor. `root_rank` is a global rank."""
    return _broadcast_async(tensor, _new_output(tensor), root_rank, name, process_set)


class HorovodBroadcast(torch.autograd.Function):
    """Broadcast; the root's gradient is the average over the ranks, the others' is zero."""

    @staticmethod
    def forward(ctx, tensor, root_rank, name, process_set):
        ctx.root_rank = root_rank
        ctx.process_set = process_set
        return synchronize(
            _broadcast_async(tensor, _new_output(tensor), root_rank, name, process_set, _WAITED)
        )

    @staticmethod
    def backward(ctx, grad_output):
        reduced = allreduce(grad_output.contiguous(), op=Average, process_set=ctx.process_set)
        if rank() != ctx.root_rank:
            reduced = reduced * 0
        return reduced, None, None, None


def broadcast(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """The root's tensor on all ranks, as a new tensor."""
    if tensor.requires_grad and torch.is_grad_enabled():
        return HorovodBroadcast.apply(tensor, root_rank, name, process_set)
    return synchronize(
        _broadcast_async(tensor, _new_output(tensor), root_rank, name, process_set, _WAITED)
    )


def broadcast_async_(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start a broadcast in place."""
    return _broadcast_async(tensor, tensor, root_rank, name, process_set)


def broadcast_(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Broadcast in place; returns the same tensor."""
    return synchronize(_broadcast_async(tensor, tensor, root_rank, name, process_set, _WAITED))


# ---- alltoall ----


def _read_splits(splits):
    """(int32 vector or None for equal parts, device for the received splits)."""
    if splits is None:
        size()
        return None, torch.device("cpu")
    if not isinstance(splits, torch.Tensor):
        size()
        return torch.tensor(splits, dtype=torch.int32).reshape(-1), torch.device("cpu")
    if splits.dim() > 1:
        raise ValueError("alltoall expects a 1D splits tensor")
    if splits.dtype != torch.int32:
        raise ValueError("alltoall expects splits to contain 32-bit integer elements.")
    if splits.dim() == 0:
        raise ValueError("alltoall expects a 1D splits tensor")
    return splits.detach().cpu().contiguous(), splits.device


def _alltoall_async(tensor, splits, output, output_received_splits, name, process_set, flags=_HOLD):
    splits, splits_device = _read_splits(splits)
    if splits is not None and splits.numel() == 0:
        splits = None
    rows = splits.tolist() if splits is not None else None

    def finish(handle):
        received = native.result_splits(handle, 0, process_set.size())
        output = _same_place(_take_result(handle, 0, tensor.dtype), tensor)
        return output, torch.tensor(received, dtype=torch.int32, device=splits_device)

    where = (native.ALLTOALL, "alltoall.", name, process_set)
    return _start_result(*where, Sum, 1.0, 1.0, tensor, rows, flags, finish)


def alltoall_async(
    tensor: torch.Tensor,
    splits: torch.Tensor | Sequence[int] | None = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start an alltoall; `synchronize` gives (output, received_splits)."""
    return _alltoall_async(tensor, splits, None, None, name, process_set)


class HorovodAlltoall(torch.autograd.Function):
    """Alltoall; the gradient goes back the same way."""

    @staticmethod
    def forward(ctx, tensor, splits, name, process_set):
        handle = _alltoall_async(tensor, splits, None, None, name, process_set, _WAITED)
        output, received_splits = synchronize(handle)
        ctx.received_splits = received_splits.cpu()
        ctx.rows = tensor.shape[0]
        ctx.process_set = process_set
        ctx.mark_non_differentiable(received_splits)
        return output, received_splits

    @staticmethod
    def backward(ctx, grad_output, *dead_gradients):
        grad, _ = synchronize(
            _alltoall_async(
                grad_output.contiguous(),
                ctx.received_splits,
                None,
                None,
                None,
                ctx.process_set,
                _WAITED,
            )
        )
        missing = ctx.rows - grad.shape[0]
        if missing > 0:  # rows that were not sent
            grad = torch.cat([grad, grad.new_zeros((missing, *grad.shape[1:]))])
        return grad, None, None, None


def alltoall(
    tensor: torch.Tensor,
    splits: torch.Tensor | Sequence[int] | None = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Send `splits[i]` rows to rank i. With `splits`, also returns the rows received from each."""
    if tensor.requires_grad and torch.is_grad_enabled():
        output, received_splits = HorovodAlltoall.apply(tensor, splits, name, process_set)
    else:
        output, received_splits = synchronize(
            _alltoall_async(tensor, splits, None, None, name, process_set, _WAITED)
        )
    return output if splits is None else (output, received_splits)


# ---- reducescatter ----


def _check_scatter_op(op):
    if op is None:
        raise TypeError("reducescatter needs an op: hvd.Average or hvd.Sum")


def _reducescatter_async(
    tensor,
    output,
    name,
    op,
    process_set,
    prescale_factor,
    postscale_factor,
    flags=_HOLD,
):
    _check_scatter_op(op)
    where = (native.REDUCESCATTER, "reducescatter.", name, process_set)
    scales = (prescale_factor, postscale_factor)
    return _start_result(*where, op, *scales, tensor, None, flags)


def reducescatter_async(
    tensor: torch.Tensor,
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """Start a reducescatter: reduce, then each rank keeps its part of the first dimension."""
    return _reducescatter_async(
        tensor, None, name, op, process_set, prescale_factor, postscale_factor
    )


def _scatter_gradient(grad, op, process_set, prescale_factor, postscale_factor):
    """What the gradient of a reducescatter's output counts before it is gathered."""
    factor = prescale_factor * postscale_factor
    if op == Sum:
        factor *= process_set.size()
    return (grad * factor).contiguous() if factor != 1.0 else grad.contiguous()


class HorovodReducescatter(torch.autograd.Function):
    """Reducescatter; the gradient is the allgather of the gradients."""

    @staticmethod
    def forward(ctx, tensor, name, op, process_set, prescale_factor, postscale_factor):
        ctx.arguments = (op, process_set, prescale_factor, postscale_factor)
        handle = _reducescatter_async(
            tensor, None, name, op, process_set, prescale_factor, postscale_factor, _WAITED
        )
        return synchronize(handle)

    @staticmethod
    def backward(ctx, grad_output):
        grad = _scatter_gradient(grad_output, *ctx.arguments)
        return allgather(grad, process_set=ctx.arguments[1]), None, None, None, None, None


def reducescatter(
    tensor: torch.Tensor,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> torch.Tensor:
    """Reduce over all ranks; rank r gets its slice of the first dimension."""
    compressed, ctx = compression.compress(tensor)
    if compressed.requires_grad and torch.is_grad_enabled():
        reduced = HorovodReducescatter.apply(
            compressed, name, op, process_set, prescale_factor, postscale_factor
        )
    else:
        reduced = synchronize(
            _reducescatter_async(
                compressed, None, name, op, process_set, prescale_factor, postscale_factor, _WAITED
            )
        )
    return compression.decompress(reduced, ctx)


def _grouped_reducescatter_async(
    tensors,
    outputs,
    name,
    op,
    process_set,
    prescale_factor,
    postscale_factor,
    flags=_HOLD,
):
    _check_scatter_op(op)
    return _grouped_result_async(
        native.REDUCESCATTER,
        "grouped_reducescatter.",
        tensors,
        name,
        op,
        (prescale_factor, postscale_factor),
        process_set,
        flags,
    )


def grouped_reducescatter_async(
    tensors: Sequence[torch.Tensor],
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """Start reducescatters that become ready together; one handle for all."""
    return _grouped_reducescatter_async(
        tensors, None, name, op, process_set, prescale_factor, postscale_factor
    )


class HorovodGroupedReducescatter(torch.autograd.Function):
    """Grouped reducescatter; gradients as for reducescatter."""

    @staticmethod
    def forward(ctx, name, op, process_set, prescale_factor, postscale_factor, *tensors):
        ctx.arguments = (op, process_set, prescale_factor, postscale_factor)
        handle = _grouped_reducescatter_async(
            list(tensors), None, name, op, process_set, prescale_factor, postscale_factor, _WAITED
        )
        return synchronize(handle)

    @staticmethod
    def backward(ctx, *grad_outputs):
        grads = [_scatter_gradient(grad, *ctx.arguments) for grad in grad_outputs]
        gathered = grouped_allgather(grads, process_set=ctx.arguments[1])
        return (None, None, None, None, None, *gathered)


def grouped_reducescatter(
    tensors: Sequence[torch.Tensor],
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[torch.Tensor]:
    """Reducescatter a list of tensors as one unit; returns a list."""
    pairs = [compression.compress(tensor) for tensor in tensors]
    pairs[0]  # noqa: B018 - an empty group is an IndexError
    reduced = HorovodGroupedReducescatter.apply(
        name, op, process_set, prescale_factor, postscale_factor, *[t for t, _ in pairs]
    )
    return [
        compression.decompress(tensor, ctx) for tensor, (_, ctx) in zip(reduced, pairs, strict=True)
    ]


# ---- join and barrier ----


def join(device: int = -1) -> int:
    """Say that this rank has no more data; blocks until all ranks said so.

    Until then this rank contributes zeros to the allreduces of the others. Returns the rank that
    joined last. `device` is where zeros would be made on an accelerator.
    """
    int(device)
    last = synchronize(
        _start_without_tensor(native.JOIN, global_process_set, _WAITED, native.result_rank)
    )
    next_era()
    return last


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Return when all ranks of the set have called it."""
    synchronize(_start_without_tensor(native.BARRIER, process_set, _WAITED))


# ---- names of the extension module, for programs that call it ----

from horovod.torch import mpi_lib_v2 as mpi_lib  # noqa: E402 - it needs the functions above


def _check_function(function_factory, tensor):
    """The name in `mpi_lib` of an operation for this tensor; ValueError if there is none."""
    function = function_factory(tensor)
    if not hasattr(mpi_lib, function):
        raise _unsupported(tensor)
    if not tensor.is_contiguous():
        raise ValueError("Tensor is required to be contiguous.")
    return function


def _make_function_factory(operation):
    def factory(tensor):
        return f"horovod_torch_{operation}_async_{tensor.type().replace('.', '_')}"

    return factory


_allreduce_function_factory = _make_function_factory("allreduce")
_grouped_allreduce_function_factory = _make_function_factory("grouped_allreduce")
_allgather_function_factory = _make_function_factory("allgather")
_grouped_allgather_function_factory = _make_function_factory("grouped_allgather")
_broadcast_function_factory = _make_function_factory("broadcast")
_alltoall_function_factory = _make_function_factory("alltoall")
_reducescatter_function_factory = _make_function_factory("reducescatter")
_grouped_reducescatter_function_factory = _make_function_factory("grouped_reducescatter")
