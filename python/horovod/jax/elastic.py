# SPDX-License-Identifier: Apache-2.0
"""Elastic training with JAX: state that survives lost and added workers."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from horovod.common.elastic import ObjectState, run_fn
from horovod.common.exceptions import HorovodInternalError
from horovod.jax.functions import broadcast_object, broadcast_parameters
from horovod.jax.mpi_ops import init, rank, shutdown

__all__ = ["JaxState", "run"]


def run(func: Callable) -> Callable:
    """Decorates a training function func(state, ...): it starts anew when workers change."""

    @functools.wraps(func)
    def wrapper(state: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return func(state, *args, **kwargs)
        except HorovodInternalError:
            raise
        except (RuntimeError, ValueError) as error:
            # XLA passes a text only: JAX chooses the class, by version and by where it waits.
            if "UNKNOWN: Horovod" in str(error):
                raise HorovodInternalError(error) from error
            raise

    return run_fn(wrapper, _reset)


def _reset():
    shutdown()
    init()
    # Programs hold the number of ranks and their order.
    jax.clear_caches()


def _is_array(leaf):
    return isinstance(leaf, (jax.Array, np.ndarray))


def _has_arrays(value):
    return any(map(_is_array, jax.tree_util.tree_leaves(value)))


def _host_copy(tree):
    """The tree with copies of its arrays: a donated array would be lost."""

    def copy(leaf):
        if not _is_array(leaf):
            return leaf
        if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            return jax.random.clone(leaf) if hasattr(jax.random, "clone") else leaf
        return np.array(leaf)

    return jax.tree_util.tree_map(copy, tree)


def _device_copy(tree):
    def copy(leaf):
        return jax.numpy.array(leaf) if isinstance(leaf, np.ndarray) else leaf

    return jax.tree_util.tree_map(copy, tree)


class JaxState(ObjectState):
    """State of a JAX training run: `JaxState(params=params, opt_state=opt_state, epoch=0)`.

    Pytrees with arrays and plain values, under whatever names they are given. Assign what a step
    returns to the attributes: `state.params, state.opt_state = step(...)`.
    """

    def __init__(self, **kwargs: Any) -> None:
        self._trees = {name: value for name, value in kwargs.items() if _has_arrays(value)}
        self._saved_trees: dict[str, Any] = {}
        for name, value in self._trees.items():
            setattr(self, name, value)
        self._save_trees()
        plain = {name: value for name, value in kwargs.items() if name not in self._trees}
        super().__init__(bcast_object=broadcast_object, get_rank=rank, **plain)

    def save(self) -> None:
        """Keep the present values."""
        self._save_trees()
        super().save()

    def restore(self) -> None:
        """Go back to the values that were saved last."""
        for name, tree in self._saved_trees.items():
            setattr(self, name, _device_copy(tree))
        super().restore()

    def sync(self) -> None:
        """Take over the values of rank 0. Collective."""
        for name in self._trees:
            setattr(self, name, broadcast_parameters(getattr(self, name), root_rank=0))
        self._save_trees()
        super().sync()

    def _save_trees(self):
        self._saved_trees = {name: _host_copy(getattr(self, name)) for name in self._trees}
