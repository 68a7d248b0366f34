# SPDX-License-Identifier: Apache-2.0
"""Keras 3 on PyTorch: gradients are PyTorch's tensors, reduced in place by horovod.torch."""

from collections.abc import Callable

import torch

import horovod.torch as hvd
from horovod._keras.plain import *  # noqa: F403
from horovod._keras.plain import key
from horovod.common.compression import NoneCompressor, wire_flag
from horovod.common.reduction import Reduction, chunks_of
from horovod.torch.mpi_ops import _HOLD, _grouped_allreduce_async
from horovod.torch.private import disable_compile

basics = hvd
none = hvd.Compression.none


def make_reducer(how: Reduction) -> Callable:
    prescale, postscale = how.scale_factors()
    wire = wire_flag(how.compression, how.op)

    def compressor_of(tensor):
        return NoneCompressor if wire and tensor.dtype is torch.float32 else how.compression

    # Not for torch.compile: a compiled step goes around it.
    @disable_compile
    def allreduce_grads(grads, variables=None, use_generic_names=False):
        results = list(grads)
        if not how.process_set.included() or how.process_set.size() == 1:
            return results
        pending = []
        for chunk in chunks_of(results, variables, how.groups, key):
            pairs = []
            for index in chunk:
                tensor = results[index].contiguous()
                pairs.append(compressor_of(tensor).compress(tensor))
            tensors = [tensor for tensor, _ in pairs]
            handle = _grouped_allreduce_async(
                *(tensors, tensors, f"{how.name}.{chunk[0]}", how.op, prescale, postscale),
                *(how.process_set, _HOLD | wire),
            )
            pending.append((handle, chunk, pairs))
        for handle, chunk, pairs in pending:
            reduced = hvd.synchronize(handle)
            for index, tensor, (_, context) in zip(chunk, reduced, pairs, strict=True):
                results[index] = compressor_of(results[index]).decompress(tensor, context)
        return results

    return allreduce_grads


# ---- values ----


def _tensor(value):
    return value.detach() if isinstance(value, torch.Tensor) else torch.as_tensor(value)


def allreduce(backend, value, name, average, prescale_factor, postscale_factor, op, compression):
    return hvd.allreduce(
        _tensor(value),
        average=average,
        name=name,
        compression=compression,
        op=op,
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
    )


def allgather(backend, value, name):
    return hvd.allgather(_tensor(value), name=name)


def broadcast(backend, value, root_rank, name):
    return hvd.broadcast(_tensor(value), root_rank, name=name)


def reducescatter(backend, value, name, op):
    return hvd.reducescatter(_tensor(value), name=name, op=op)


def average(backend, values, device):
    return hvd.allreduce(torch.as_tensor(values), name="metrics", op=hvd.Average).numpy()


# ---- variables ----


def read(backend, value):
    return float(getattr(value, "value", value))


def broadcast_state(backend, variables, root_rank, device):
    for index, variable in enumerate(variables):
        hvd.broadcast_(variable.value.data, root_rank, name=f"keras.variable.{index}")


broadcast_object = hvd.broadcast_object
