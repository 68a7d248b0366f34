# SPDX-License-Identifier: Apache-2.0
"""Which tensors a Keras computes with, and so which module moves them.

A bridge is one of the modules on_tensorflow, on_torch, on_jax. All offer the same:

  basics                      init(), size(), rank(), ..., Average, Sum, Compression
  make_reducer(...)           a function (grads, variables) -> reduced grads
  make_aggregation(settings)  what sums gradients over several passes, or None
  reduce_but_local(...)       reduces all gradients but those of local variables
  not_reduced(grads, ...)     indices of the gradients that no tape has reduced yet
  mark(grads, variables)      gives reduced gradients the mark that not_reduced() looks for
  key(variable)               hashable, equal for the same variable
  members_of(base)            methods of a wrapped optimizer class
  read(variable), assign(variable, number)
  allreduce(), allgather(), broadcast(), reducescatter()   of values
  before_variables(model)     brings the variables of a model in training up to date
  broadcast_state(...)        variables of a model and its optimizer
"""

import functools
import importlib

_NAMES = ("tensorflow", "torch", "jax")


@functools.cache
def _named(name):
    if name not in _NAMES:
        raise ImportError(
            f"horovod.keras works with Keras on {', '.join(_NAMES)}; the backend here is {name!r}."
        )
    return importlib.import_module(f"horovod._keras.on_{name}")


def bridge_of(backend):
    """The bridge for a `keras.backend` module; Keras 2 knows TensorFlow only."""
    name = getattr(backend, "backend", None)
    name = name() if callable(name) else "tensorflow"
    return _named(name if isinstance(name, str) else "tensorflow")
