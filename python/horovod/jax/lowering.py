# SPDX-License-Identifier: Apache-2.0
"""A collective inside a program: a custom call of the handler in libhorovod_jax.so.

In one program calls of one name are numbered in the order in which they stand there. It is the same
on all ranks, if they run the same program, whenever and how often each of them traces it. JAX makes
one function of a jitted function, or of the body of a loop, that a program uses twice; calls inside
would have one name then, and ranks could combine one use with the other. So functions that hold a
collective are made again for each use (_Lowerings).

Allreduce and broadcast write to the memory of their arguments; XLA copies an argument before if
somebody else needs it.

With a runtime without futures (library.IS_BLOCKING) the calls of a block of the program are
chained: each takes a number that the one before gives, so XLA can't start them in an order of its
own on each rank, which would have all of them wait for ever.
"""

import inspect
from typing import Any

import jax
import numpy as np
from jax.interpreters import mlir

from horovod.common.library import native
from horovod.jax import library
from horovod.jax.primitive import SAME_SHAPE, AutoName, collective_p, together

_LINK = jax.core.ShapedArray((1,), np.dtype("int32"))


class _Program:
    """What is known about the program that is being made; lives as long as it."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def number(self, name: str | AutoName) -> str:
        base = name.site if isinstance(name, AutoName) else name
        count = self._counts.get(base, 0)
        self._counts[base] = count + 1
        if isinstance(name, AutoName):
            return f"{base}.{count}"
        return base if count == 0 else f"{base}.again{count}"


def _last_link():
    """What the last collective before this one gives, in the same block of the program.

    Found in the block itself: JAX discards blocks, and another may take the place in memory.
    """
    link = None
    for view in mlir.ir.InsertionPoint.current.block.operations:
        operation = view.operation
        if operation.name == "stablehlo.custom_call":
            target = mlir.ir.StringAttr(operation.attributes["call_target_name"]).value
            if target == library.TARGET:
                link = operation.results[len(operation.results) - 1]
    return mlir.ir_constant(np.zeros(1, np.int32)) if link is None else link


_state = {"has_programs": False, "lowered": 0}


class _Lowerings(dict):
    """What JAX keeps of a program's functions, without those that hold a collective.

    JAX looks for a function, makes it if it is not there, and keeps it. If a collective was lowered
    in between, it is part of the function.
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._begun: dict[Any, int] = {}

    def get(self, key: Any, default: Any = None) -> Any:
        value = super().get(key, default)
        if value is default:
            self._begun[key] = _state["lowered"]
        return value

    def __missing__(self, key: Any) -> Any:
        self._begun[key] = _state["lowered"]
        raise KeyError(key)

    def __setitem__(self, key: Any, value: Any) -> None:
        if self._begun.pop(key, None) == _state["lowered"]:
            super().__setitem__(key, value)


def _watch_programs():
    """Every program that JAX makes from now on has caches of ours."""
    made = mlir.ModuleContext.__init__

    def make(self, *arguments, **options):
        made(self, *arguments, **options)
        for name in ("cached_primitive_lowerings", "lowering_cache"):
            cache = getattr(self, name, None)
            if type(cache) is dict and not cache:
                setattr(self, name, _Lowerings())

    mlir.ModuleContext.__init__ = make


def has_programs() -> bool:
    """Has this process made a program with a collective?"""
    return bool(_state["has_programs"])


def _program_of(ctx):
    kept = ctx.module_context.keepalives
    for value in kept:
        if isinstance(value, _Program):
            return value
    _state["has_programs"] = True
    kept.append(_Program())
    return kept[-1]


def _device_count(axis_context):
    """Devices that run the program."""
    for name in ("num_devices",):
        if isinstance(getattr(axis_context, name, None), int):
            return getattr(axis_context, name)
    if hasattr(axis_context, "mesh"):
        return axis_context.mesh.size
    return getattr(getattr(axis_context, "axis_env", None), "nreps", 1)


def _refuse_several_devices(ctx):
    count = _device_count(ctx.module_context.axis_context)
    if count > 1:
        raise NotImplementedError(
            f"horovod.jax: this program runs on {count} devices of one process (pmap, shard_map or "
            "a sharded jit), and each of them would call the collective. Start one process per "
            "device (horovodrun -np N) with one device each, or reduce over the devices with "
            "jax.lax.psum first and call Horovod outside of the mapped function."
        )


def _attributes(call, name):
    attributes = {
        "name": name,
        "kind": np.int64(call.kind),
        "reduce": np.int64(call.op),
        "root": np.int64(call.root),
        "set": np.int64(call.set_id),
        "wire": np.int64(call.wire),
        "prescale": np.float64(call.prescale),
        "postscale": np.float64(call.postscale),
        "chain": np.int64(1 if library.IS_BLOCKING else 2 if library.HAS_SPARE_RESULT else 0),
    }
    if call.splits is not None:
        attributes["splits"] = np.array(call.splits, np.int64)
    return attributes


def _custom_call(ctx, operands, avals_in, avals_out, call, name):
    """One call of the handler."""
    count = len(avals_out)
    given, avals_in, avals_out = list(operands), list(avals_in), list(avals_out)
    if library.IS_BLOCKING:
        given.append(_last_link())
        avals_in.append(_LINK)
    if library.IS_BLOCKING or library.HAS_SPARE_RESULT:
        avals_out.append(_LINK)
    is_in_place = call.kind in SAME_SHAPE
    rule = library.ffi.ffi_lowering(
        library.TARGET,
        has_side_effect=call.is_kept or call.kind in (native.BARRIER, native.JOIN),
        operand_output_aliases={i: i for i in range(len(operands))} if is_in_place else None,
    )
    inner = ctx.replace(avals_in=avals_in, avals_out=avals_out)
    return list(rule(inner, *given, **_attributes(call, name)))[:count]


def _lower(ctx, *operands, call):
    _refuse_several_devices(ctx)
    _state["lowered"] += 1
    name = _program_of(ctx).number(call.name)
    groups = together(ctx.avals_in, call)
    if len(groups) == 1:
        return _custom_call(ctx, operands, ctx.avals_in, ctx.avals_out, call, name)
    results = [None] * len(operands)
    for suffix, which in groups:
        parts = ([values[i] for i in which] for values in (operands, ctx.avals_in, ctx.avals_out))
        reduced = _custom_call(ctx, *parts, call, name + suffix)
        for i, result in zip(which, reduced, strict=True):
            results[i] = result
    return results


def _refuse_platform(ctx, *operands, call):
    raise NotImplementedError(
        "horovod.jax moves arrays in the host's memory: programs with collectives run on the CPU "
        "only (JAX_PLATFORMS=cpu). Outside of jit arrays of any device work; they are copied."
    )


def _register():
    # A lowering that JAX keeps and reuses would have the same name everywhere.
    options = {}
    if "cacheable" in inspect.signature(mlir.register_lowering).parameters:
        options["cacheable"] = False
    mlir.register_lowering(collective_p, _refuse_platform, **options)
    mlir.register_lowering(collective_p, _lower, platform="cpu", **options)


_watch_programs()
_register()
