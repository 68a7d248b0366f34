# SPDX-License-Identifier: Apache-2.0
"""Small functions about eager execution, caching and variables."""

from typing import Any, TypeAlias

import tensorflow as tf

_IS_TF2 = True

# What TensorFlow makes a tensor from: tensors, variables, arrays, numbers, tf.IndexedSlices.
TensorLike: TypeAlias = Any


def _executing_eagerly():
    """Are ops run as they are called, rather than put into a graph?"""
    return tf.executing_eagerly()


def _make_subgraph(f):
    return tf.function(f)


def _cache(f):
    """Remember f's results by its arguments and by whether execution is eager."""
    cache = {}

    def wrapper(*args):
        key = (args, _executing_eagerly())
        if key not in cache:
            cache[key] = f(*args)
        return cache[key]

    return wrapper


def tf_variable(variable):
    """The tf.Variable behind a Keras 3 variable; others are given back as they are."""
    if isinstance(variable, tf.Variable):
        return variable
    inner = getattr(variable, "_value", None)
    if isinstance(inner, tf.Variable):
        return inner
    value = getattr(variable, "value", None)
    if value is not None and not callable(value) and hasattr(value, "assign"):
        return value
    return variable


def variable_key(variable):
    """Something hashable that is equal for the same variable, also for Keras 3's."""
    variable = tf_variable(variable)
    if hasattr(variable, "ref"):
        return variable.ref()
    return id(variable)


def vars_to_refs(vars: Any) -> Any:
    """References to variables, which can be keys of a cache."""
    if isinstance(vars, list):
        return tuple(vars_to_refs(v) for v in vars)
    return tf_variable(vars).ref()


def refs_to_vars(refs: Any) -> Any:
    """The variables behind references, in the same nesting of tuples."""
    if isinstance(refs, tuple):
        return [refs_to_vars(r) for r in refs]
    return refs.deref()
