# SPDX-License-Identifier: Apache-2.0
"""The one primitive behind all collectives: what JAX must know to run, differentiate and batch it.

A call has any number of arrays, which travel as one group or as several (together()), and a Call
that says what to do with them. Arrays that have values go to eager.py; inside a program lowering.py
makes custom calls.

The gradient is that of the sum of all ranks' losses, as for jax.lax.psum and its sisters: each rule
below is the transpose of the map from all ranks' inputs to all ranks' outputs.
Start reading at `run`.
"""

import itertools
import os
import sys
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.interpreters import ad, batching

from horovod.common.library import native
from horovod.jax import eager

try:
    from jax.extend.core import Primitive
except ImportError:  # before 0.4.36
    from jax.core import Primitive

_aval_of = getattr(jax, "typeof", None) or jax.core.get_aval  # typeof: from 0.6 on

KINDS = {
    native.ALLREDUCE: "allreduce",
    native.ALLGATHER: "allgather",
    native.BROADCAST: "broadcast",
    native.ALLTOALL: "alltoall",
    native.REDUCESCATTER: "reducescatter",
    native.BARRIER: "barrier",
    native.JOIN: "join",
}
SAME_SHAPE = (native.ALLREDUCE, native.BROADCAST, native.BARRIER)
_serials = itertools.count()
_ALONE_BYTES = 1 << 20


class AutoName(NamedTuple):
    """The name of a call whose user gave none: where it stands in the source.

    lowering.py numbers the calls that stand at one place in a program, so ranks that trace a
    function at different times agree. `serial` tells calls apart that are equal otherwise.
    """

    site: str
    serial: int


class Call(NamedTuple):
    """What one call does; constant in a program."""

    kind: int
    name: str | AutoName
    op: int = native.SUM
    prescale: float = 1.0
    postscale: float = 1.0
    root: int = 0
    set_id: int = 0
    ranks: int = 1  # of the process set
    own: int = 0  # this process's rank in it
    # allgather: rows of each rank, for each array. None: as they come, which only eager calls can.
    rows: tuple[tuple[int, ...], ...] | None = None
    splits: tuple[int, ...] | None = None  # alltoall; None: equal parts
    received: tuple[int, ...] | None = None
    is_kept: bool = False  # also if its result is not used
    is_split: bool = False  # allreduce: large arrays travel alone
    wire: int = 0  # allreduce: the type in which float32 travels; 0: its own


# ---- names ----

_OURS = tuple(os.path.dirname(os.path.abspath(path)) + os.sep for path in (__file__, jax.__file__))


def _site():
    """File and line of the nearest caller outside of this package and of JAX."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_OURS):
        frame = frame.f_back
    if frame is None:
        return "unknown"
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"


def name_of(kind: int, name: str | None) -> str | AutoName:
    """The name of a call: the user's, or one from its place in the source."""
    if name:
        return name.removeprefix("/")  # one that all frameworks share: handles.op_name()
    return AutoName(f"jax.{KINDS[kind]}.{_site()}", next(_serials))


def _renamed(call, suffix):
    if isinstance(call.name, AutoName):
        return call._replace(name=AutoName(call.name.site + suffix, next(_serials)))
    return call._replace(name=call.name + suffix)


# ---- groups ----


def together(arrays: Sequence, call: Call) -> list[tuple[str, list[int]]]:
    """Which arrays travel together: [(what follows the name of the call, their indices)].

    In a program a large array that travels alone leaves as soon as it is computed, and its memory
    is used again before the last one is there. All ranks must find the same groups: only sizes
    count.
    """
    every = list(range(len(arrays)))
    if not call.is_split or len(every) == 1:
        return [("", every)]
    large = [i for i in every if arrays[i].size * arrays[i].dtype.itemsize >= _ALONE_BYTES]
    small = [i for i in every if i not in large]
    return [("", small)] * bool(small) + [(f".{i}", [i]) for i in large]


# ---- run ----

collective_p = Primitive("horovod_collective")
collective_p.multiple_results = True


def run(arrays: list, call: Call) -> list:
    """The results of a collective on arrays, with values or without."""
    return collective_p.bind(*arrays, call=call)


def is_traced(arrays: list) -> bool:
    """Does one of them have no value yet?"""
    return any(isinstance(array, jax.core.Tracer) for array in arrays)


def _check_rows(results, expected):
    for result, shape in zip(results, expected, strict=True):
        if result.shape[0] != shape[0]:
            raise ValueError(
                f"The ranks' rows make an array of shape {result.shape}, but {shape} was expected. "
                "Under jit, grad or vmap all ranks must pass equally many rows, or say in sizes= "
                "(of alltoall: received_splits=) how many each passes."
            )


@collective_p.def_impl
def _impl(*arrays, call):
    """Every array has a value."""
    name = None if isinstance(call.name, AutoName) else call.name
    scales = (call.prescale, call.postscale)
    if call.kind == native.JOIN:
        return [jnp.int32(eager.join())]
    if call.kind == native.BARRIER:
        for array in arrays:
            array.block_until_ready()
        eager.barrier(call.set_id)
        return list(arrays)
    if call.kind in SAME_SHAPE:
        groups = [(name and name + suffix, which) for suffix, which in together(arrays, call)]
        where = (call.root, call.set_id, call.wire << native.WIRE_SHIFT)
        return eager.same_shape(arrays, groups, call.kind, call.op, scales, *where)
    results, _ = eager.by_rows(arrays, name, call.kind, call.op, scales, call.splits, call.set_id)
    if call.rows is not None or call.received is not None:
        _check_rows(results, [_shape_of(array.shape, i, call) for i, array in enumerate(arrays)])
    return results


# ---- shapes ----


def share_of(rows: int, ranks: int, rank: int) -> int:
    """How many of so many rows a rank gets from reducescatter."""
    return rows // ranks + (rank < rows % ranks)


def _shape_of(shape, index, call):
    if call.kind in SAME_SHAPE:
        return shape
    if call.kind == native.ALLGATHER:
        return (sum(call.rows[index]), *shape[1:])
    if call.kind == native.ALLTOALL:
        return (sum(call.received), *shape[1:])
    return (share_of(shape[0], call.ranks, call.own), *shape[1:])


@collective_p.def_abstract_eval
def _abstract(*avals, call):
    if call.kind == native.JOIN:
        return [jax.core.ShapedArray((), np.dtype("int32"))]
    return [
        jax.core.ShapedArray(_shape_of(aval.shape, index, call), aval.dtype)
        for index, aval in enumerate(avals)
    ]


# ---- gradients ----


def _refuse_gradient(call):
    reduces = call.kind in (native.ALLREDUCE, native.REDUCESCATTER)
    if reduces and call.op not in (native.SUM, native.AVERAGE):
        raise NotImplementedError(
            f"{KINDS[call.kind]} has a gradient for op=Sum and op=Average only. Use "
            "jax.lax.stop_gradient() on its argument if no gradient is wanted."
        )


def _has_tangent(tangent):
    aval = getattr(tangent, "aval", tangent)
    return aval.dtype != jax.dtypes.float0


def _pick(call, indices):
    """The call for some of its arrays."""
    if call.rows is None:
        return call
    return call._replace(rows=tuple(call.rows[index] for index in indices))


def _jvp(primals, tangents, *, call):
    outputs = run(list(primals), call)
    zeros = [ad.Zero(_aval_of(output).to_tangent_aval()) for output in outputs]
    if all(type(tangent) is ad.Zero for tangent in tangents):
        return outputs, zeros
    if call.kind == native.BARRIER:
        return outputs, list(tangents)
    _refuse_gradient(call)
    # Also where this rank's is 0: another rank's program is the same.
    indices = [i for i, tangent in enumerate(tangents) if _has_tangent(tangent)]
    given = [ad.instantiate_zeros(tangents[i]) for i in indices]
    for index, result in zip(
        indices, run(given, _renamed(_pick(call, indices), ".tangent")), strict=True
    ):
        zeros[index] = result
    return outputs, zeros


def _own_rows(array, rows, rank):
    start = sum(rows[:rank])
    return jax.lax.slice_in_dim(array, start, start + rows[rank], axis=0)


def _transpose_allgather(cotangents, call):
    if all(len(set(rows)) == 1 for rows in call.rows):
        return run(cotangents, call._replace(kind=native.REDUCESCATTER, rows=None))
    totals = run(cotangents, call._replace(kind=native.ALLREDUCE, rows=None))
    pairs = zip(totals, call.rows, strict=True)
    return [_own_rows(total, rows, call.own) for total, rows in pairs]


def _transpose_broadcast(cotangents, call):
    # The other ranks do not use the sum, but must take part in it.
    totals = run(cotangents, call._replace(kind=native.ALLREDUCE, is_kept=True))
    is_root = native.rank() == call.root
    return [jnp.where(is_root, total, jnp.zeros_like(total)) for total in totals]


def _transpose_reducescatter(cotangents, arguments, call):
    def rows_of(argument):
        rows = argument.aval.shape[0]
        return tuple(share_of(rows, call.ranks, rank) for rank in range(call.ranks))

    factor = call.prescale * call.postscale / (call.ranks if call.op == native.AVERAGE else 1)
    gather = call._replace(
        kind=native.ALLGATHER,
        rows=tuple(rows_of(argument) for argument in arguments),
        prescale=1.0,
        postscale=1.0,
    )
    results = run(cotangents, gather)
    return results if factor == 1 else [result * factor for result in results]


def _transpose(cotangents, *arguments, call):
    cotangents = [ad.instantiate_zeros(cotangent) for cotangent in cotangents]
    call = _renamed(call, ".grad")
    if call.kind == native.ALLREDUCE:
        return run(cotangents, call)
    if call.kind == native.ALLGATHER:
        return _transpose_allgather(cotangents, call)
    if call.kind == native.BROADCAST:
        return _transpose_broadcast(cotangents, call)
    if call.kind == native.ALLTOALL:
        return run(cotangents, call._replace(splits=call.received, received=call.splits))
    return _transpose_reducescatter(cotangents, arguments, call)


ad.primitive_jvps[collective_p] = _jvp
ad.primitive_transposes[collective_p] = _transpose


# ---- vmap ----


def _batch(arrays, dims, *, call):
    if call.op == native.ADASUM and call.kind == native.ALLREDUCE:
        raise NotImplementedError("Adasum under vmap: it would combine the batch as one vector.")
    if call.kind in SAME_SHAPE:
        return run(list(arrays), call), list(dims)
    # Rows stay in front.
    moved, places = [], []
    for array, dim in zip(arrays, dims, strict=True):
        is_mapped = isinstance(dim, int)
        moved.append(jnp.moveaxis(array, dim, 1) if is_mapped else array)
        places.append(1 if is_mapped else dim)
    return run(moved, call), places


batching.primitive_batchers[collective_p] = _batch
