# SPDX-License-Identifier: Apache-2.0
"""Collective operations on arrays and pytrees of arrays, eager and inside jit, grad, vmap, scan.

The arrays of a pytree travel as one group; allreduce() lets large ones travel alone. A name must
mean the same call on all ranks; a call without one has that of its place in the source (inside a
program) or is numbered (outside).
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from horovod.common.array_compression import Compression
from horovod.common.arrays import DTYPES
from horovod.common.compression import NoneCompressor, wire_of
from horovod.common.handles import set_id as _set_id
from horovod.common.library import native
from horovod.common.names import *  # noqa: F403
from horovod.common.names import (
    Average,
    global_process_set,
    handle_average_backwards_compatibility,
)
from horovod.common.names import basics as _basics  # noqa: F401
from horovod.common.process_sets import ProcessSet
from horovod.jax import eager
from horovod.jax.life import init, shutdown  # noqa: F401
from horovod.jax.primitive import Call, is_traced, name_of, run


def _check_has_gpu():
    return any(device.platform == "gpu" for device in jax.devices())


# ---- arrays ----


def _array(leaf):
    return leaf if isinstance(leaf, (jax.Array, jax.core.Tracer)) else jnp.asarray(leaf)


def _is_key(array):
    return jax.dtypes.issubdtype(array.dtype, jax.dtypes.prng_key)


def _check_reduced(arrays, kind):
    for array in arrays:
        if array.dtype.name not in DTYPES:
            raise TypeError(
                f"{kind} does not compute with {array.dtype.name}. Cast the array to one of "
                f"{', '.join(sorted(DTYPES))}."
            )


def _check_moved(arrays, kind):
    for array in arrays:
        name = array.dtype.name
        if name not in DTYPES and array.dtype.itemsize not in (1, 4, 8, 16) or "int4" in name:
            raise TypeError(f"{kind} does not move {name}. Cast the array to another type.")


def _check_rows(arrays, kind):
    for array in arrays:
        if array.ndim == 0:
            raise ValueError(f"{kind} needs arrays with at least one dimension, not scalars.")


def _map(function: Callable[[list], list], tree: Any) -> Any:
    """function(list of arrays) -> list of arrays, for the leaves of a tree."""
    leaves, form = jax.tree_util.tree_flatten(tree)
    if not leaves:
        return tree
    return jax.tree_util.tree_unflatten(form, function([_array(leaf) for leaf in leaves]))


def _members(process_set: ProcessSet) -> dict[str, Any]:
    """The part of a Call that tells who takes part."""
    set_id = _set_id(process_set)
    return {
        "set_id": set_id,
        "ranks": native.process_set_size(set_id),
        "own": native.process_set_rank(set_id),
    }


# ---- reductions ----


def _reduce(tree, kind, name, compression, op, prescale, postscale, process_set, is_split=False):
    def compress(leaf):
        is_converted = wire and getattr(leaf, "dtype", None) == np.float32
        return NoneCompressor if is_converted else compression

    def reduce(leaves):
        compressors = [compress(leaf) for leaf in leaves]
        pairs = [how.compress(leaf) for how, leaf in zip(compressors, leaves, strict=True)]
        arrays = [_array(array) for array, _ in pairs]
        _check_reduced(arrays, title)
        if kind == native.REDUCESCATTER:
            _check_rows(arrays, title)
        scales = (float(prescale), float(postscale))
        call = Call(kind, full_name, op, *scales, is_split=is_split, wire=wire, **members)
        results = run(arrays, call)
        contexts = [context for _, context in pairs]
        return [
            how.decompress(result, context)
            for how, result, context in zip(compressors, results, contexts, strict=True)
        ]

    wire = wire_of(compression, op) if kind == native.ALLREDUCE else 0
    title = "allreduce" if kind == native.ALLREDUCE else "reducescatter"
    full_name = name_of(kind, name)
    members = _members(process_set)
    return _map(reduce, tree)


def allreduce(
    tensor: Any,
    average: bool | None = None,
    name: str | None = None,
    compression: Any = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """The arrays of a pytree, each averaged (or reduced by `op`) over the ranks."""
    op = handle_average_backwards_compatibility(op, average)
    factors = (prescale_factor, postscale_factor)
    return _reduce(tensor, native.ALLREDUCE, name, compression, op, *factors, process_set, True)


def grouped_allreduce(
    tensors: Sequence,
    average: bool | None = None,
    name: str | None = None,
    compression: Any = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list:
    """allreduce() of several arrays at once; all or none of them are executed."""
    op = handle_average_backwards_compatibility(op, average)
    factors = (prescale_factor, postscale_factor)
    return _reduce(list(tensors), native.ALLREDUCE, name, compression, op, *factors, process_set)


def reducescatter(
    tensor: Any,
    name: str | None = None,
    compression: Any = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Any:
    """This rank's rows of the average (or sum) over the ranks; the first ranks get one row more."""
    factors = (prescale_factor, postscale_factor)
    return _reduce(tensor, native.REDUCESCATTER, name, compression, op, *factors, process_set)


def grouped_reducescatter(
    tensors: Sequence,
    name: str | None = None,
    compression: Any = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list:
    """reducescatter() of several arrays at once."""
    factors = (prescale_factor, postscale_factor)
    return _reduce(
        list(tensors), native.REDUCESCATTER, name, compression, op, *factors, process_set
    )


# ---- movements ----


def allgather(
    tensor: Any,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    sizes: Sequence[int] | None = None,
) -> Any:
    """The arrays of all ranks, concatenated along the first dimension.

    sizes: how many rows each rank passes. Needed under jit, grad and vmap if ranks pass different
    numbers of rows; without it they count as equal there.
    """

    def gather(arrays):
        _check_moved(arrays, "allgather")
        _check_rows(arrays, "allgather")
        call = Call(native.ALLGATHER, full_name, rows=rows_of(arrays), **members)
        return run(arrays, call)

    def rows_of(arrays):
        ranks = members["ranks"]
        if sizes is None:
            traced = is_traced(arrays)
            return tuple((array.shape[0],) * ranks for array in arrays) if traced else None
        rows = tuple(int(size) for size in sizes)
        if len(rows) != ranks or any(a.shape[0] != rows[members["own"]] for a in arrays):
            raise ValueError(
                f"allgather: sizes={list(rows)} must have one number for each of {ranks} ranks, "
                f"and this rank's must be that of its rows: {[a.shape[0] for a in arrays]}"
            )
        return (rows,) * len(arrays)

    full_name = name_of(native.ALLGATHER, name)
    members = _members(process_set)
    return _map(gather, tensor)


def grouped_allgather(
    tensors: Sequence, name: str | None = None, process_set: ProcessSet = global_process_set
) -> list:
    """allgather() of several arrays at once."""
    return allgather(list(tensors), name, process_set)


def broadcast(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """The arrays of the rank `root_rank` (a global rank), on all ranks."""

    def send(arrays):
        # Keys of jax.random travel as the numbers that they consist of.
        plain = [jax.random.key_data(a) if _is_key(a) else a for a in arrays]
        _check_moved(plain, "broadcast")
        results = run(plain, Call(native.BROADCAST, full_name, root=int(root_rank), **members))
        return [
            jax.random.wrap_key_data(result, impl=jax.random.key_impl(array))
            if _is_key(array)
            else result
            for result, array in zip(results, arrays, strict=True)
        ]

    full_name = name_of(native.BROADCAST, name)
    members = _members(process_set)
    return _map(send, tensor)


def _numbers(splits, what):
    if isinstance(splits, jax.core.Tracer):
        raise TypeError(
            f"alltoall: {what} must be known when a function is traced, because shapes depend on "
            "it. Pass a list of integers, or call alltoall outside of jit."
        )
    array = np.asarray(splits)
    if array.ndim != 1:
        raise ValueError(f"alltoall expects a 1D {what} tensor")
    return tuple(int(number) for number in array)


def _received(array, splits, given, ranks):
    """Rows that a traced alltoall gets from each rank."""
    if given is not None:
        return _numbers(given, "received_splits")
    if splits is None:
        if array.shape[0] % ranks != 0:
            raise ValueError(
                f"alltoall: {array.shape[0]} rows can't be split evenly among {ranks} ranks; pass "
                "splits="
            )
        return (array.shape[0] // ranks,) * ranks
    if len(set(splits)) == 1:
        return splits
    raise ValueError(
        "alltoall: under jit, grad or vmap uneven splits= need received_splits=, how many rows "
        "come from each rank, because shapes depend on it."
    )


def alltoall(
    tensor: Any,
    splits: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    received_splits: Sequence[int] | None = None,
) -> Any:
    """Sends slices of the first dimension to all ranks and concatenates what they send.

    splits: how many rows go to each rank; None sends equal parts. With splits the result is
    (output, received_splits). received_splits: needed under jit, grad and vmap if splits are
    uneven.
    """
    array = _array(tensor)
    _check_moved([array], "alltoall")
    _check_rows([array], "alltoall")
    members = _members(process_set)
    given = None if splits is None else _numbers(splits, "splits")
    call = Call(native.ALLTOALL, name_of(native.ALLTOALL, name), splits=given, **members)
    if not is_traced([array]) and received_splits is None:
        own_name = name.removeprefix("/") if name else None
        results, received = eager.by_rows(
            [array], own_name, call.kind, call.op, (1.0, 1.0), given, call.set_id
        )
    else:
        received = _received(array, given, received_splits, call.ranks)
        even = (array.shape[0] // call.ranks,) * call.ranks
        results = run([array], call._replace(splits=given or even, received=received))
    if given is None:
        return results[0]
    return results[0], jnp.asarray(np.asarray(received, np.int32))


# ---- without arrays ----


def join() -> Any:
    """Tells that this rank has no more data; returns, when all have, the one that was last."""
    (last,) = run([], Call(native.JOIN, name_of(native.JOIN, None)))
    return last if is_traced([last]) else int(last)


def barrier(process_set: ProcessSet = global_process_set, after: Any = None) -> Any:
    """Returns when every rank of the set is here.

    after: inside a program nothing but data orders what happens, so pass arrays that must be
    computed before, and go on with what comes back: they are the same arrays.
    """
    call = Call(native.BARRIER, name_of(native.BARRIER, None), set_id=_set_id(process_set))
    if after is None:
        run([], call)
        return None
    return _map(lambda arrays: run(arrays, call), after)
