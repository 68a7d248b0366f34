# SPDX-License-Identifier: Apache-2.0
"""Gradients of all ranks: an Optax transformation, and jax.grad with an allreduce behind it."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax

from horovod.common.array_compression import Compression
from horovod.common.names import Average, global_process_set
from horovod.common.process_sets import ProcessSet
from horovod.common.reduction import Reduction, chunks_of
from horovod.jax.mpi_ops import allreduce, grouped_allreduce


class _Transformation(NamedTuple):
    """What Optax calls a GradientTransformationExtraArgs; it looks for these two names."""

    init: Callable
    update: Callable


def _reduce_tree(tree: Any, how: Reduction) -> Any:
    """A tree of gradients, reduced over the ranks; leaves that are None stay so."""
    leaves, form = jax.tree_util.tree_flatten(tree)
    results = list(leaves)
    prescale, postscale = how.scale_factors()
    reduce = allreduce if how.groups is None else grouped_allreduce
    for number, chunk in enumerate(chunks_of(results, None, how.groups or 1, id)):
        reduced = reduce(
            [results[index] for index in chunk],
            name=f"{how.name}.{number}",
            compression=how.compression,
            op=how.op,
            prescale_factor=prescale,
            postscale_factor=postscale,
            process_set=how.process_set,
        )
        for index, array in zip(chunk, reduced, strict=True):
            results[index] = array
    return jax.tree_util.tree_unflatten(form, results)


def _reduction(name, compression, op, gradient_predivide_factor, num_groups, process_set):
    if gradient_predivide_factor != 1.0 and op != Average:
        raise ValueError("gradient_predivide_factor not supported with op != Average")
    if not isinstance(num_groups, int) or num_groups < 0:
        raise ValueError("num_groups should be a non-negative integer")
    groups = num_groups or None
    choices = (compression, False, op, gradient_predivide_factor, groups, process_set)
    return Reduction(name, "", "", *choices)


def _with_optax(init, update):
    """Optax' own class if Optax is there, so that its functions recognise it."""
    try:
        from optax import GradientTransformationExtraArgs
    except ImportError:
        return _Transformation(init, update)
    return GradientTransformationExtraArgs(init, update)


def _update_of(optimizer):
    """Its update function; with Optax, one that ignores arguments which it does not know."""
    try:
        from optax import with_extra_args_support
    except ImportError:
        return optimizer.update
    return with_extra_args_support(optimizer).update


def DistributedOptimizer(  # noqa: N802
    optimizer: Any,
    name: str | None = None,
    compression: Any = Compression.none,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """An Optax transformation that reduces the gradients over the ranks, then runs `optimizer`.

    It can stand wherever one of Optax can: in optax.chain(), inside optax.MultiSteps(), inside jit.
    Large gradients travel alone, while others are still computed, and small ones together;
    num_groups makes so many groups of all of them. If the gradients were reduced before, by
    hvd.grad() say, use the optimizer as it is.
    """
    how = _reduction(
        name or "DistributedOptimizer",
        compression,
        op,
        gradient_predivide_factor,
        num_groups,
        process_set,
    )
    inner_update = _update_of(optimizer)

    def update(updates, state, params=None, **extra):
        return inner_update(_reduce_tree(updates, how), state, params, **extra)

    return _with_optax(optimizer.init, update)


def value_and_grad(
    fun: Callable,
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    name: str | None = None,
    compression: Any = Compression.none,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    process_set: ProcessSet = global_process_set,
    **options: Any,
) -> Callable:
    """jax.value_and_grad() whose gradients are reduced over the ranks; the value is this rank's.

    options: further arguments of jax.value_and_grad().
    """
    how = _reduction(
        name or "grad", compression, op, gradient_predivide_factor, num_groups, process_set
    )
    compute = jax.value_and_grad(fun, argnums=argnums, has_aux=has_aux, **options)

    @functools.wraps(fun)
    def reduced(*args, **kwargs):
        value, grads = compute(*args, **kwargs)
        return value, _reduce_tree(grads, how)

    return reduced


def grad(
    fun: Callable,
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    name: str | None = None,
    compression: Any = Compression.none,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    process_set: ProcessSet = global_process_set,
    **options: Any,
) -> Callable:
    """jax.grad() whose gradients are reduced over the ranks.

    options: further arguments of jax.grad().
    """
    choices = (name, compression, op, gradient_predivide_factor, num_groups, process_set)
    both = value_and_grad(fun, argnums, has_aux, *choices, **options)

    @functools.wraps(fun)
    def reduced(*args, **kwargs):
        value, grads = both(*args, **kwargs)
        return (grads, value[1]) if has_aux else grads

    return reduced
