# SPDX-License-Identifier: Apache-2.0
"""Which gradients have been reduced already.

What reduces gradients before an optimizer sees them (DistributedGradientTape, compute_gradients()
of a wrapped optimizer) marks its results; a wrapped optimizer reduces what has no mark. The mark is
on the tensor, never in the optimizer: a flag there would be read once, while a step is
traced, and be true or false in every step that follows. An eager tensor has an attribute; in a
graph an identity of a known name stands behind the gradient.

A tensor computed from a marked one (clipped, scaled) is found in a graph by its inputs. In eager
mode it can't be found. That does no harm if a second reduction changes nothing: the mean of equal
gradients. Where it would, with op=Sum for instance, not knowing is an error.
"""

import weakref

import tensorflow as tf

from horovod.tensorflow.util import tf_variable

_NODE, _ATTRIBUTE = "HorovodReduced", "_hvd_is_reduced"

# Variables of which reduced gradients were made, by id: only their gradients can be in doubt.
_variables = weakref.WeakValueDictionary()


def _is_eager(tensor):
    return not tf.is_symbolic_tensor(tensor)


def _mark(grad):
    if grad is None:
        return None
    if isinstance(grad, tf.IndexedSlices):
        return tf.IndexedSlices(_mark(grad.values), grad.indices, dense_shape=grad.dense_shape)
    if not _is_eager(grad):
        return tf.identity(grad, name=_NODE)
    grad = tf.convert_to_tensor(grad)
    setattr(grad, _ATTRIBUTE, True)
    return grad


def mark(grads, variables):
    """The gradients, for a wrapped optimizer to see that they need not be reduced again."""
    for variable in variables:
        variable = tf_variable(variable)
        _variables[id(variable)] = variable
    return [_mark(grad) for grad in grads]


def _has_mark(grad):
    tensor = grad.values if isinstance(grad, tf.IndexedSlices) else grad
    if _is_eager(tensor):
        return getattr(tensor, _ATTRIBUTE, False)
    return _NODE in tensor.op.name.rsplit("/", 1)[-1]


# ---- in graphs: what a gradient is computed from ----


def _graphs_of(op):
    """The bodies of the functions that an op calls."""
    names = [attr.func.name for attr in op.node_def.attr.values() if attr.func.name]
    functions = [op.graph._get_function(name) for name in names]
    return [function.graph for function in functions if hasattr(function, "graph")]


def _sources_of(tensor):
    op = tensor.op
    yield from op.inputs
    for graph in _graphs_of(op):
        if tensor.value_index < len(graph.outputs):
            yield graph.outputs[tensor.value_index]


def _is_from_marked(grad):
    grad = grad.values if isinstance(grad, tf.IndexedSlices) else grad
    stack, seen = [grad], set()
    while stack:
        tensor = stack.pop()
        if id(tensor) in seen or _is_eager(tensor):
            continue
        seen.add(id(tensor))
        if _has_mark(tensor):
            return True
        stack.extend(_sources_of(tensor))
    return False


def _is_from_outside(grad):
    """Was it computed where a graph does not show it?"""
    tensor = grad.values if isinstance(grad, tf.IndexedSlices) else grad
    return _is_eager(tensor) or tensor.op.type == "Placeholder"


def _is_known(variable):
    variable = tf_variable(variable)
    return _variables.get(id(variable)) is variable


def not_reduced(grads, variables, is_idempotent):
    """Indices of the gradients that are still to be reduced: all, if none has been."""
    is_done = [grad is not None and _has_mark(grad) for grad in grads]
    if not is_idempotent:
        for index, (grad, variable) in enumerate(zip(grads, variables, strict=True)):
            if grad is None or is_done[index] or not _is_known(variable):
                continue
            if _is_from_outside(grad):
                raise ValueError(
                    f"Horovod can't see whether the gradient of {tf_variable(variable).name} has "
                    "been reduced: compute_gradients() or DistributedGradientTape gave one for "
                    "this variable, but what is applied is another tensor, and reducing it twice "
                    "would give wrong numbers. Apply gradients as they were given, change and "
                    "apply them in one tf.function, or use op=hvd.Average without "
                    "backward_passes_per_step. To look at gradients, use a plain tf.GradientTape."
                )
            is_done[index] = _is_from_marked(grad)
    if not any(is_done):
        return list(range(len(grads)))
    return [i for i, grad in enumerate(grads) if grad is not None and not is_done[i]]
