# SPDX-License-Identifier: Apache-2.0
"""Keras 3 on PyTorch: gradients are PyTorch's tensors, reduced in place by horovod.torch."""

import torch

import horovod.torch as hvd
from horovod._keras.plain import (  # noqa: F401
    before_variables,
    broadcast_global_variables,
    chunks_of,
    compute_gradients,
    evaluate,
    factors_of,
    is_variable,
    key,
    make_aggregation,
    members_of,
    reduce_but_local,
)

basics = hvd
none = hvd.Compression.none


def make_reducer(
    name,
    device_dense,
    device_sparse,
    compression,
    sparse_as_dense,
    op,
    gradient_predivide_factor,
    groups,
    process_set,
):
    prescale, postscale = factors_of(op == hvd.Average, gradient_predivide_factor)

    # Not for torch.compile: a compiled step goes around it.
    @torch._dynamo.disable
    def allreduce_grads(grads, variables=None, use_generic_names=False):
        results = list(grads)
        if not process_set.included() or process_set.size() == 1:
            return results
        pending = []
        for chunk in chunks_of(results, variables, groups):
            pairs = [compression.compress(results[index].contiguous()) for index in chunk]
            handle = hvd.grouped_allreduce_async_(
                [tensor for tensor, _ in pairs],
                name=f"{name}.{chunk[0]}",
                op=op,
                prescale_factor=prescale,
                postscale_factor=postscale,
                process_set=process_set,
            )
            pending.append((handle, chunk, pairs))
        for handle, chunk, pairs in pending:
            reduced = hvd.synchronize(handle)
            for index, tensor, (_, context) in zip(chunk, reduced, pairs, strict=True):
                results[index] = compression.decompress(tensor, context)
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


def assign(backend, variable, number):
    """False if it is no variable."""
    if not is_variable(variable):
        return False
    variable.assign(number)
    return True


def copy(target, source):
    target.assign(source.value)


def broadcast_state(backend, variables, root_rank, device):
    for index, variable in enumerate(variables):
        hvd.broadcast_(variable.value.data, root_rank, name=f"keras.variable.{index}")


broadcast_object = hvd.broadcast_object
