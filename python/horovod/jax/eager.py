# SPDX-License-Identifier: Apache-2.0
"""Collectives on arrays that have values: straight to the core, without a program of XLA.

Nothing is compiled for a call, so names, rows and splits may change from call to call.
"""

import jax.numpy as jnp
import numpy as np

from horovod.common.arrays import DTYPES, Arrays
from horovod.common.library import native

arrays = Arrays()

# Types that the core can't compute with travel as integers: {bytes of an element: their type}.
_CARRIERS = {1: np.uint8, 4: np.int32, 8: np.int64}


def _to_wire(array):
    """The same bytes as a type that the core moves; 16 bytes make one dimension more."""
    array = np.asarray(array)
    if array.dtype.name in DTYPES:
        return array
    if array.dtype.itemsize == 16:
        return np.ascontiguousarray(array).reshape(*array.shape, 1).view(np.int64)
    return array.view(_CARRIERS[array.dtype.itemsize])


def _from_wire(array, dtype):
    if array.dtype == dtype:
        return array
    result = array.view(dtype)
    return result.reshape(array.shape[:-1]) if dtype.itemsize == 16 else result


def _restore(results, dtypes):
    pairs = zip(results, dtypes, strict=True)
    return [jnp.asarray(_from_wire(result, np.dtype(dtype))) for result, dtype in pairs]


def same_shape(inputs, groups, kind, op, scales, root, set_id, flags):
    """allreduce or broadcast: arrays like those that went in; groups: [(name, their indices)]."""
    wire = [_to_wire(array) for array in inputs]
    if len(groups) == 1:
        results = arrays.same_shape(kind, wire, groups[0][0], op, scales, root, set_id, flags)
    else:
        results = arrays.in_groups(kind, wire, groups, op, scales, set_id, flags)
    return _restore(results, [array.dtype for array in inputs])


def by_rows(inputs, name, kind, op, scales, splits, set_id):
    """allgather, alltoall or reducescatter: (arrays, rows received from each rank)."""
    wire = [_to_wire(array) for array in inputs]
    given = None if splits is None else list(splits)
    results, received = arrays.by_rows(kind, wire, name, op, scales, given, set_id)
    return _restore(results, [array.dtype for array in inputs]), received


def join() -> int:
    """The rank that joined last."""
    return arrays.without_tensor(native.JOIN)


def barrier(set_id: int) -> None:
    arrays.without_tensor(native.BARRIER, set_id)
