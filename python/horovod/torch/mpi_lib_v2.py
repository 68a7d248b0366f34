# SPDX-License-Identifier: Apache-2.0
"""The functions of the extension module that older programs call below horovod.torch.mpi_ops.

Nothing is compiled for PyTorch any more: each function starts the operation that mpi_ops starts,
and takes arguments in the order of the extension. Handles are those of mpi_ops. Where an output is
given it is resized and filled when the handle is waited for.
"""

import torch

from horovod.torch import mpi_ops

_TYPES = {
    "Byte": torch.uint8,
    "Char": torch.int8,
    "Short": torch.int16,
    "Int": torch.int32,
    "Long": torch.int64,
    "Half": torch.float16,
    "BFloat16": torch.bfloat16,
    "Float": torch.float32,
    "Double": torch.float64,
    "Bool": torch.bool,
}


class _Set:
    """What mpi_ops needs of a process set, by its id."""

    def __init__(self, process_set_id):
        self.process_set_id = process_set_id

    def size(self):
        return mpi_ops._basics._process_set_size(self.process_set_id)


def _name(name):
    return name.decode() if isinstance(name, bytes) else name


def _fill(output, result):
    with torch.no_grad():
        if output is not None and output is not result:
            output.resize_(result.shape).copy_(result)


_with = mpi_ops._handles.then


def _divide(result, divisor):
    for tensor in result if isinstance(result, (list, tuple)) else [result]:
        with torch.no_grad():
            tensor.div_(divisor, rounding_mode=None if tensor.is_floating_point() else "trunc")


def _allreduce(tensor, output, divisor, name, op, prescale, postscale, process_set_id):
    handle = mpi_ops._allreduce_async(
        tensor, output, _name(name), op, prescale, postscale, _Set(process_set_id)
    )
    return handle if divisor == 1 else _with(handle, lambda result: _divide(result, divisor))


def _grouped_allreduce(tensors, outputs, divisor, name, op, prescale, postscale, process_set_id):
    handle = mpi_ops._grouped_allreduce_async(
        tensors, outputs, _name(name), op, prescale, postscale, _Set(process_set_id)
    )
    return handle if divisor == 1 else _with(handle, lambda result: _divide(result, divisor))


def _fill_all(outputs, results):
    for output, result in zip(outputs or (), results, strict=False):
        _fill(output, result)


def _allgather(tensor, output, name, process_set_id):
    handle = mpi_ops._allgather_async(tensor, output, _name(name), _Set(process_set_id))
    return _with(handle, lambda result: _fill(output, result))


def _grouped_allgather(tensors, outputs, name, process_set_id):
    handle = mpi_ops._grouped_allgather_async(tensors, outputs, _name(name), _Set(process_set_id))
    return _with(handle, lambda results: _fill_all(outputs, results))


def _broadcast(tensor, output, root_rank, name, process_set_id):
    return mpi_ops._broadcast_async(tensor, output, root_rank, _name(name), _Set(process_set_id))


def _alltoall(tensor, splits, output, output_received_splits, name, process_set_id):
    handle = mpi_ops._alltoall_async(
        tensor, splits, output, output_received_splits, _name(name), _Set(process_set_id)
    )
    return _with(handle, lambda results: _fill_all([output, output_received_splits], results))


def _reducescatter(tensor, output, name, op, process_set_id, prescale, postscale):
    handle = mpi_ops._reducescatter_async(
        tensor, output, _name(name), op, _Set(process_set_id), prescale, postscale
    )
    return _with(handle, lambda result: _fill(output, result))


def _grouped_reducescatter(tensors, outputs, name, op, process_set_id, prescale, postscale):
    handle = mpi_ops._grouped_reducescatter_async(
        tensors, outputs, _name(name), op, _Set(process_set_id), prescale, postscale
    )
    return _with(handle, lambda results: _fill_all(outputs, results))


def horovod_torch_poll(handle):
    return mpi_ops.poll(handle)


def horovod_torch_wait_and_clear(handle):
    """Wait for an operation; its outputs hold the result."""
    mpi_ops.synchronize(handle)


def _start_without_tensor(kind, process_set_id, finish=None):
    return mpi_ops._start_without_tensor(kind, _Set(process_set_id), mpi_ops._HOLD, finish)


def horovod_torch_join(output_last_joined_rank, device):
    """Start a join; the tensor gets the rank that joined last."""
    handle = _start_without_tensor(mpi_ops.native.JOIN, 0, mpi_ops.native.result_rank)
    return _with(handle, output_last_joined_rank.fill_)


def horovod_torch_barrier(process_set_id):
    return _start_without_tensor(mpi_ops.native.BARRIER, process_set_id)


def horovod_torch_reset():
    """Nothing is left to forget: init() does it itself."""


def _register():
    """One name for each operation, type and kind of device, all of them the same function."""
    reducing = (_allreduce, _grouped_allreduce, _reducescatter, _grouped_reducescatter)
    moving = (_allgather, _grouped_allgather, _broadcast, _alltoall)
    for function in (*reducing, *moving):
        for kind in _TYPES:
            for device in ("", "cuda_"):
                name = f"horovod_torch{function.__name__}_async_torch_{device}{kind}Tensor"
                globals()[name] = function


_register()
