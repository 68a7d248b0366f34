# SPDX-License-Identifier: Apache-2.0
"""Collective operations on PyTorch tensors.

A tensor reaches the core as a pointer; the native module reads pointer, dtype and shape itself.
`_handle_map` keeps the tensors of an operation alive until it is synchronised. The synchronous
forms go through autograd only when a gradient is wanted.

Start reading at `_submit`; everything else says what to submit and what to do with the result.
"""

import torch

from horovod.common.basics import HorovodBasics as _HorovodBasics
from horovod.common.exceptions import HorovodInternalError
from horovod.common.library import native
from horovod.common.process_sets import (  # noqa: F401
    ProcessSet,
    add_process_set,
    global_process_set,
    remove_process_set,
)
from horovod.common.process_sets import _setup as _setup_process_sets
from horovod.common.util import (
    check_installed_version,
    get_average_backwards_compatibility_fun,
    num_rank_is_power_2,
)
from horovod.torch.compression import Compression

check_installed_version("pytorch", torch.__version__)

_NULL = ""
_basics = _HorovodBasics(__file__, "mpi_lib_v2")

is_initialized = _basics.is_initialized
start_timeline = _basics.start_timeline
stop_timeline = _basics.stop_timeline
size = _basics.size
local_size = _basics.local_size
cross_size = _basics.cross_size
rank = _basics.rank
local_rank = _basics.local_rank
cross_rank = _basics.cross_rank
is_homogeneous = _basics.is_homogeneous
mpi_threads_supported = _basics.mpi_threads_supported
mpi_enabled = _basics.mpi_enabled
mpi_built = _basics.mpi_built
gloo_enabled = _basics.gloo_enabled
gloo_built = _basics.gloo_built
nccl_built = _basics.nccl_built
ddl_built = _basics.ddl_built
ccl_built = _basics.ccl_built
cuda_built = _basics.cuda_built
rocm_built = _basics.rocm_built

Average = _basics.Average
Sum = _basics.Sum
Adasum = _basics.Adasum
Min = _basics.Min
Max = _basics.Max
Product = _basics.Product

handle_average_backwards_compatibility = get_average_backwards_compatibility_fun(_basics)

_setup_process_sets(_basics)

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

_WITHOUT_TENSOR = (native.JOIN, native.BARRIER)
_HOLD = native.OP_NAME_HOLD
_WAITED = native.OP_NAME_HOLD | native.OP_WAITED

# handle -> (input(s), ..., output): alive until the operation has ended. The last is the result.
_handle_map = {}
# handle -> function of the handle that makes the result, where more is to do than to wait.
_finishers = {}
# Tensors of operations that nobody can ask for any more, but which may still be running.
_orphans = []
# Handles of a life that has ended: True if the operation had not succeeded by then.
_stale_handles = {}
_polled_handle = None

_SHUT_DOWN_TEXT = (
    "Horovod has been shut down. This was caused by an exception on one of the ranks or an attempt "
    "to allreduce, allgather or broadcast a tensor after one of the ranks finished execution. If "
    "the shutdown was caused by an exception, you should see the exception in the log before the "
    "first shutdown message."
)


# ---- life ----


def init(*args, **kwargs):
    """Start Horovod; see HorovodBasics.init()."""
    global _polled_handle
    _polled_handle = None
    if _handle_map:
        _orphans.append((dict(_handle_map), dict(_finishers)))
    _handle_map.clear()
    _finishers.clear()
    _stale_handles.clear()
    _basics.init(*args, **kwargs)
    _setup_process_sets(_basics)


def shutdown(*args, **kwargs):
    """Stop Horovod on all ranks; pending operations fail."""
    from horovod.torch import arena

    arena.release_all()
    for handle in list(_handle_map):
        _stale_handles.setdefault(handle, native.status(handle) != 0)
    _basics.shutdown(*args, **kwargs)
    _orphans.clear()


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
    if _HAS_EXCHANGE or tensor is None:
        return tensor
    if not _is_ready(tensor):
        raise _TensorError("Tensor is not dense host memory.")
    return (tensor.data_ptr(), _DTYPES[tensor.dtype], tuple(tensor.shape))


def _full_name(prefix, name):
    if not name:
        return None
    try:
        return prefix + name
    except TypeError:
        name.encode  # noqa: B018 - names are str: the error that scripts know
        raise


def _set_id(process_set):
    process_set_id = process_set.process_set_id
    if process_set_id is None:
        raise ValueError(
            f"{process_set} is not registered: pass it to hvd.init() or hvd.add_process_set()."
        )
    return process_set_id


def _submit(kind, name, process_set, op, prescale, postscale, root, tensor, output, splits, flags):
    """Hand one operation to the core; returns its handle. Raises TensorError for `_stand_in`."""
    process_set_id = process_set.process_set_id
    if process_set_id is None:
        process_set_id = _set_id(process_set)
    if tensor is None and kind not in _WITHOUT_TENSOR:
        raise AttributeError("'NoneType' object has no attribute 'new'")
    if not _HAS_EXCHANGE:
        same = output is tensor
        tensor = _view(tensor)
        output = tensor if same else _view(output)
    try:
        return native.submit(
            kind,
            name,
            process_set_id,
            op,
            prescale,
            postscale,
            root,
            tensor,
            output,
            splits,
            flags,
        )
    except RuntimeError as error:
        raise HorovodInternalError(error) from None  # the context stays: scripts look at it


def _submit_group(kind, names, process_set, op, prescale, postscale, inputs, outputs, flags):
    process_set_id = _set_id(process_set)
    if not _HAS_EXCHANGE:
        inputs = [_view(tensor) for tensor in inputs]
        outputs = [_view(tensor) for tensor in outputs] if outputs is not None else None
    try:
        return native.submit_group(
            kind, names, process_set_id, op, prescale, postscale, inputs, outputs, flags
        )
    except RuntimeError as error:
        raise HorovodInternalError(error) from None


def _submit_into(kind, name, process_set, op, prescale, postscale, root, tensor, output, flags):
    """Start an operation whose result has its place already: `output`, which may be `tensor`."""
    arguments = (kind, name, process_set, op, prescale, postscale, root)
    try:
        handle = _submit(*arguments, tensor, output, None, flags)
    except _TensorError:
        copy = _stand_in(tensor)
        if copy is tensor and _is_ready(output):
            raise
        target = output if output is not tensor and _is_ready(output) else copy
        handle = _submit(*arguments, copy, target, None, flags)
        _handle_map[handle] = (tensor, copy, output)
        if target is not output:
            _finishers[handle] = lambda handle: _copy_into(output, target)
        return handle
    _handle_map[handle] = (tensor, output)
    return handle


def _submit_result(kind, name, process_set, op, prescale, postscale, tensor, splits, flags):
    """Start an operation whose result the core makes; `synchronize` gives it where `tensor` is."""
    arguments = (kind, name, process_set, op, prescale, postscale, 0)
    source = tensor
    try:
        handle = _submit(*arguments, tensor, None, splits, flags)
    except _TensorError:
        source = _stand_in(tensor)
        handle = _submit(*arguments, source, None, splits, flags)
    _handle_map[handle] = (tensor, source)
    _finishers[handle] = lambda handle: _same_place(_take_result(handle, 0, tensor.dtype), tensor)
    return handle


def _copy_into(output, target):
    with torch.no_grad():
        return output.copy_(target)


def _group_names(prefix, name, count):
    if not name:
        return None
    full = _full_name(prefix, name)
    return [f"{full}_{i + 1}of{count}" for i in range(count)]


def _same_place(copy, tensor):
    """A result made in host memory, where the input lives."""
    return copy if tensor.device.type == "cpu" else copy.to(tensor.device)


# ---- handles ----


def poll(handle):
    """Has the operation ended, well or badly? After True, `synchronize` does not block.

    The first question about the operation that was started last is always answered with no:
    programs rely on starting being asynchronous, however fast the core is.
    """
    global _polled_handle
    if handle not in _handle_map or _stale_handles.get(handle) is False:
        raise ValueError(f"Handle {handle} was not created or has been cleared.")
    if handle in _stale_handles:
        return True
    is_done = native.poll(handle)
    if handle != _polled_handle and handle == next(reversed(_handle_map)):
        _polled_handle = handle
        return False
    return is_done


def synchronize(handle):
    """Wait until the operation has ended and return its result; None for an unknown handle."""
    entry = _handle_map.get(handle)
    if entry is None:
        return None
    if _stale_handles:
        _synchronize_stale(handle)
    finisher = _finishers.get(handle) if _finishers else None
    try:
        if finisher is None:
            native.finish(handle)
        else:
            native.wait(handle)
    except RuntimeError as error:
        _forget(handle)
        raise HorovodInternalError(error) from None
    except ValueError:
        _forget(handle)
        raise
    del _handle_map[handle]
    if finisher is None:
        return entry[-1]
    del _finishers[handle]
    try:
        return finisher(handle)
    finally:
        native.release(handle)


def _forget(handle):
    _handle_map.pop(handle, None)
    _finishers.pop(handle, None)


def _synchronize_stale(handle):
    has_failed = _stale_handles.get(handle)
    if has_failed is None:
        return
    if not has_failed:
        raise ValueError(f"Handle {handle} was not created or has been cleared.")
    _forget(handle)
    del _stale_handles[handle]
    try:
        raise RuntimeError(_SHUT_DOWN_TEXT)
    except RuntimeError as error:
        raise HorovodInternalError(error) from None


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
    full = _full_name("allreduce.", name)
    scales = (prescale_factor, postscale_factor)
    return _submit_into(native.ALLREDUCE, full, process_set, op, *scales, 0, tensor, output, flags)


def _new_like(tensor):
    """Memory for a result: dense, whatever the input's strides."""
    return torch.empty_like(tensor, memory_format=torch.contiguous_format, requires_grad=False)


def allreduce_async(
    tensor,
    average=None,
    name=None,
    op=None,
    prescale_factor=1.0,
    postscale_factor=1.0,
    process_set=global_process_set,
):
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


class HorovodAllreduce(torch.autograd.Function):
    """Allreduce whose gradient is the allreduce of the gradient."""

    @staticmethod
    def forward(ctx, tensor, average, name, op, prescale_factor, postscale_factor, process_set):
        ctx.arguments = (average, op, prescale_factor, postscale_factor, process_set)
        op = handle_average_backwards_compatibility(op, average)
        output = _new_output(tensor)
        handle = _allreduce_async(
            tensor, output, name, op, prescale_factor, postscale_factor, process_set, _WAITED
        )
        return synchronize(handle)

    @staticmethod
    def backward(ctx, grad_output):
        average, op, prescale_factor, postscale_factor, process_set = ctx.arguments
        reduced = allreduce(
            grad_output.contiguous(),
            op=handle_average_backwards_compatibility(op, average),
            prescale_factor=prescale_factor,
            postscale_factor=postscale_factor,
            process_set=process_set,
        )
        return reduced, None, None, None, None, None, None


def allreduce(
    tensor,
    average=None,
    name=None,
    compression=Compression.none,
    op=None,
    prescale_factor=1.0,
    postscale_factor=1.0,
    process_set=global_process_set,
):
    """Reduce a tensor over all ranks of the set; the default is the average.

    The input is left alone. Gradients flow: the gradient is allreduced in the same way.
    """
    if average is not None or op is None:
        op = handle_average_backwards_compatibility(op, average)
    if compression is not Compression.none:
        compressed, ctx = compression.compress(tensor)
        reduced = allreduce(
            compressed,
            name=name,
            op=op,
            prescale_factor=prescale_factor,
            postscale_factor=postscale_factor,
            process_set=process_set,
        )
        return compression.decompress(reduced, ctx)
    if tensor.requires_grad and torch.is_grad_enabled():
        return HorovodAllreduce.apply(
            tensor, None, name, op, prescale_factor, postscale_factor, process_set
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
            _WAITED,
        )
    )


def allreduce_async_(
    tensor,
    average=None,
    name=None,
    op=None,
    prescale_factor=1.0,
    postscale_factor=1.0,
    process_set=global_process_set,
):
    """Start an allreduce in place."""
    if average is not None or op is None:
        op = handle_average_backwards_compatibility(op, average)
    return _allreduce_async(
        tensor, tensor, name, op, prescale_factor, postscale_factor, process_set
    )


def allreduce_(
    tensor,
    average=None,
    name=None,
    op=None,
    prescale_factor=1.0,
    postscale_factor=1.0,
    process_set=global_process_set,
):
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
    names = _group_names("grouped_allreduce.", name, len(tensors))
    arguments = (process_set, op, prescale_factor, postscale_factor)
    inputs, targets = list(tensors), list(outputs)
    try:
        handle = _submit_group(native.ALLREDUCE, names, *arguments, inputs, targets, flags)
    except _TensorError:
        _check_device(tensors)
        inputs = _stand_ins(tensors)
        targets = [
            output if output is not tensor and _is_ready(output) else copy
            for tensor, output, copy in zip(tensors, outputs, inputs, strict=True)
        ]
        handle = _submit_group(native.ALLREDUCE, names, *arguments, inputs, targets, flags)

        def finish(handle):
            for output, target in zip(outputs, targets, strict=True):
                if output is not target:
                    output.copy_(target)
            return tuple(outputs)

        _finishers[handle] = finish
    _handle_map[handle] = (tensors, inputs, targets, tuple(outputs))
    return handle


def grouped_allreduce_async(
    tensors,
    average=None,
    name=None,
    op=None,
    prescale_factor=1.0,
    postscale_factor=1.0,
    process_set=global_process_set,
):
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
        op = handle_average_backwards_compatibility(op, average)
        ctx.arguments = (op, prescale_factor, postscale_factor, process_set)
        outputs = [_new_output(tensor) for tensor in tensors]
        handle = _grouped_allreduce_async(
            list(tensors),
            outputs,
            name,
            op,
            prescale_factor,
            postscale_factor,
            process_set,
            _WAITED,
        )
        return synchronize(handle)

    @staticmethod
    def backward(ctx, *grad_outputs):
        op, prescale_factor, postscale_factor, process_set = ctx.arguments
        reduced = grouped_allreduce(
            [grad.contiguous() for grad in grad_outputs],
            op=op,
            prescale_factor=prescale_factor,
            postscale_factor=postscale_factor,
            process_set=process_set,
        )
        return (None, None, None, None, None, None, *reduced)


def grouped_allreduce(
    tensors,
    average=None,
    name=None,
    compression=Compression.none,
    op=None,
    prescale_factor=1.0,
    postscale_factor=1.0,
    process_set=global_process_set,
):
    """Allreduce a list of tensors as one unit; returns a list."""
    op = handle_average_backwards_compatibility(op, average)
    pairs = [compression.compress(tensor) for tensor in tensors]
    if not pairs:
        raise ValueError("not enough values to unpack (expected 2, got 0)")
    compressed = [tensor for tensor, _ in pairs]
    reduced = HorovodGroupedAllreduce.apply(
        None, name, op, prescale_factor, postscale_factor, process_set, *compressed
    )
    return [
        compression.decompress(tensor, ctx) for tensor, (_, ctx) in zip(reduced, pairs, strict=True)
    ]


def grouped_allreduce_async_(
    tensors,
    average=None,
    name=None,
    op=None,
    prescale_factor=1.0,
    postscale_factor=1.0,
    process_set=global_process_set,
):
    """Start a grouped allreduce in place."""
    op = handle_average_backwards_compatibility(op, average)
    return _grouped_allreduce_async(
        tensors, tensors, name, op, prescale_factor, postscale_factor, process_set
    )


def grouped_allreduce_(
    tensors,
    average=None,
    name=None,
    op=None,
    prescale_factor=1.0,
    postscale_factor=1.0,
    process_set=global_process_set,
):
    """Grouped allreduce in place; returns a tuple of the same tensors."""
    op = handle_average_backwards_compatibility(op, average)
    return synchronize(
        _grouped_allreduce_async(
            tensors, tensors, name, op, prescale_factor, postscale_factor, process_set, _WAITED
        )
    )


# ---- sparse allreduce ----


def sparse_allreduce_async(tensor, name, op, process_set=global_process_set):
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

    return finish


# ---- allgather ----


def _allgather_async(tensor, output, name, process_set, flags=_HOLD):
    """`output` is accepted for the sake of old callers; the result is a new tensor."""
    full = _full_name("allgather.", name)
    return _submit_result(native.ALLGATHER, full, process_set, Sum, 1.0, 1.0, tensor, None, flags)


def allgather_async(tensor, name=None, process_set=global_process_set):
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


def allgather(tensor, name=None, process_set=global_process_set):
    """Concatenate the ranks' tensors along the first dimension, in which they may differ."""
    if tensor.dim() == 0:
        raise IndexError("tuple index out of range")
    if tensor.requires_grad and torch.is_grad_enabled():
        return HorovodAllgather.apply(tensor, name, process_set)
    return synchronize(_allgather_async(tensor, None, name, process_set, _WAITED))


def _grouped_result_async(kind, prefix, tensors, name, op, scales, process_set, flags):
    """A group whose results are made by the core: allgather and reducescatter."""
    tensors[0]  # noqa: B018 - an empty group is an IndexError
    names = _group_names(prefix, name, len(tensors))
    sources = list(tensors)
    try:
        handle = _submit_group(kind, names, process_set, op, *scales, sources, None, flags)
    except _TensorError:
        _check_device(tensors)
        sources = _stand_ins(tensors)
        handle = _submit_group(kind, names, process_set, op, *scales, sources, None, flags)
    _handle_map[handle] = (tensors, sources)
    _finishers[handle] = lambda handle: tuple(
        _same_place(_take_result(handle, i, tensor.dtype), tensor)
        for i, tensor in enumerate(tensors)
    )
    return handle


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


def grouped_allgather_async(tensors, name=None, process_set=global_process_set):
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


def grouped_allgather(tensors, name=None, process_set=global_process_set):
    """Allgather a list of tensors as one unit; returns a tuple."""
    tensors = list(tensors)
    tensors[0]  # noqa: B018
    if any(tensor.dim() == 0 for tensor in tensors):
        raise IndexError("tuple index out of range")
    return HorovodGroupedAllgather.apply(name, process_set, *tensors)


# ---- broadcast ----


def _broadcast_async(tensor, output, root_rank, name, process_set, flags=_HOLD):
    full = _full_name("broadcast.", name)
    return _submit_into(
        native.BROADCAST, full, process_set, Sum, 1.0, 1.0, root_rank, tensor, output, flags
    )


def broadcast_async(tensor, root_rank, name=None, process_set=global_process_set):
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


def broadcast(tensor, root_rank, name=None, process_set=global_process_set):
    """The root's tensor on all ranks, as a new tensor."""
    if tensor.requires_grad and torch.is_grad_enabled():
        return HorovodBroadcast.apply(tensor, root_rank, name, process_set)
    return synchronize(
        _broadcast_async(tensor, _new_output(tensor), root_rank, name, process_set, _WAITED)
    )


def broadcast_async_(tensor, root_rank, name=None, process_set=global_process_set):
    """Start a broadcast in place."""
    return _broadcast_async(tensor, tensor, root_rank, name, process_set)


def broadcast_(tensor, root_rank, name=None, process_set=global_process_set):
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
    full = _full_name("alltoall.", name)
    rows = splits.tolist() if splits is not None else None
    handle = _submit_result(native.ALLTOALL, full, process_set, Sum, 1.0, 1.0, tensor, rows, flags)
    take = _finishers[handle]

    def finish(handle):
        received = native.result_splits(handle, 0, process_set.size())
        return take(handle), torch.tensor(received, dtype=torch.int32, device=splits_device)

    _finishers[handle] = finish
    return handle


def alltoall_async(tensor, splits=None, name=None, process_set=global_process_set):
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


def alltoall(tensor, splits=None, name=None, process_set=global_process_set):
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
    full = _full_name("reducescatter.", name)
    scales = (prescale_factor, postscale_factor)
    return _submit_result(native.REDUCESCATTER, full, process_set, op, *scales, tensor, None, flags)


def reducescatter_async(
    tensor,
    name=None,
    op=Average,
    process_set=global_process_set,
    prescale_factor=1.0,
    postscale_factor=1.0,
):
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
    tensor,
    name=None,
    compression=Compression.none,
    op=Average,
    process_set=global_process_set,
    prescale_factor=1.0,
    postscale_factor=1.0,
):
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
    tensors,
    name=None,
    op=Average,
    process_set=global_process_set,
    prescale_factor=1.0,
    postscale_factor=1.0,
):
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
    tensors,
    name=None,
    compression=Compression.none,
    op=Average,
    process_set=global_process_set,
    prescale_factor=1.0,
    postscale_factor=1.0,
):
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


def join(device=-1) -> int:
    """Say that this rank has no more data; blocks until all ranks said so.

    Until then this rank contributes zeros to the allreduces of the others. Returns the rank that
    joined last. `device` is where zeros would be made on an accelerator.
    """
    int(device)
    handle = _submit(
        native.JOIN, None, global_process_set, Sum, 1.0, 1.0, 0, None, None, None, _WAITED
    )
    _handle_map[handle] = (None,)
    _finishers[handle] = native.result_rank
    return synchronize(handle)


def barrier(process_set=global_process_set):
    """Return when all ranks of the set have called it."""
    handle = _submit(native.BARRIER, None, process_set, Sum, 1.0, 1.0, 0, None, None, None, _WAITED)
    _handle_map[handle] = (None,)
    synchronize(handle)
