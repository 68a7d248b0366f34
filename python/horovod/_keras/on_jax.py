# SPDX-License-Identifier: Apache-2.0
"""Keras 3 on JAX: a compiled step calls back into the host, where all gradients travel at once."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import io_callback

from horovod._keras import host as hvd
from horovod._keras.plain import *  # noqa: F403
from horovod._keras.plain import key
from horovod.common.compression import NoneCompressor, wire_flag
from horovod.common.reduction import Reduction, chunks_of

basics = hvd
none = hvd.Compression.none
broadcast_object = hvd.broadcast_object


def _call(function, arrays):
    """function(list of NumPy arrays) of the values that `arrays` have when the step runs."""
    if not any(isinstance(array, jax.core.Tracer) for array in arrays):
        return [jnp.asarray(result) for result in function(*map(np.asarray, arrays))]
    shapes = [jax.ShapeDtypeStruct(array.shape, array.dtype) for array in arrays]
    return io_callback(function, shapes, *arrays, ordered=True)


def _compressor(array, wire, compression):
    """What is float32 is not cast if the core converts it."""
    return NoneCompressor if wire and array.dtype == np.float32 else compression


def make_reducer(how: Reduction) -> Callable:
    scales = how.scale_factors()
    wire = wire_flag(how.compression, how.op)

    def reduce_chunk(chunk_name):
        def reduce(*arrays):
            inputs = [np.asarray(array) for array in arrays]
            return hvd.grouped_allreduce(inputs, chunk_name, how.op, scales, how.process_set, wire)

        return reduce

    def allreduce_grads(grads, variables=None, use_generic_names=False):
        results = list(grads)
        if not how.process_set.included() or how.process_set.size() == 1:
            return results
        # Callbacks run one after the other: all in one is the quick way.
        groups = 1 if how.groups is None else how.groups
        for chunk in chunks_of(results, variables, groups, key):
            inputs = [jnp.asarray(results[index]) for index in chunk]
            compressors = [_compressor(array, wire, how.compression) for array in inputs]
            pairs = [by.compress(array) for by, array in zip(compressors, inputs, strict=True)]
            reduce = reduce_chunk(f"{how.name}.{chunk[0]}")
            reduced = _call(reduce, [array for array, _ in pairs])
            for index, by, array, (_, context) in zip(
                chunk, compressors, reduced, pairs, strict=True
            ):
                results[index] = by.decompress(array, context)
        return results

    return allreduce_grads


# ---- values ----


def allreduce(backend, value, name, average, prescale_factor, postscale_factor, op, compression):
    op = hvd.handle_average_backwards_compatibility(op, average)
    wire = wire_flag(compression, op)
    value = np.asarray(value)
    compression = _compressor(value, wire, compression)
    array, context = compression.compress(value)
    scales = (prescale_factor, postscale_factor)
    (result,) = hvd.grouped_allreduce([array], name or "allreduce", op, scales, wire=wire)
    return jnp.asarray(compression.decompress(result, context))


def allgather(backend, value, name):
    return jnp.asarray(hvd.allgather(np.asarray(value), name or "allgather"))


def broadcast(backend, value, root_rank, name):
    return jnp.asarray(hvd.broadcast(np.asarray(value), root_rank, name or "broadcast"))


def reducescatter(backend, value, name, op):
    return jnp.asarray(hvd.reducescatter(np.asarray(value), name or "reducescatter", op))


def average(backend, values, device):
    return hvd.grouped_allreduce([values], "metrics", hvd.Average)[0]


# ---- variables ----


def before_variables(model):  # type: ignore[no-redef]
    """In fit() JAX keeps the state elsewhere; from here on the variables hold it."""
    sync = getattr(model, "jax_state_sync", None)
    if sync is not None:
        sync()


def read(backend, value):
    return float(np.asarray(getattr(value, "value", value)))


def broadcast_state(backend, variables, root_rank, device):
    for index, variable in enumerate(variables):
        value = hvd.broadcast(np.asarray(variable.value), root_rank, f"keras.variable.{index}")
        variable.assign(value)
