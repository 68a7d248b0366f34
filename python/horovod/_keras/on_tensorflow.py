# SPDX-License-Identifier: Apache-2.0
"""Keras 2 and Keras 3 on TensorFlow. See bridge.py for what a bridge is."""

import tensorflow as tf

import horovod.tensorflow as hvd
from horovod._keras import momentum
from horovod.tensorflow.gradient_aggregation import LocalGradientAggregationHelper
from horovod.tensorflow.gradient_aggregation_eager import LocalGradientAggregationHelperEager
from horovod.tensorflow.gradients import (  # noqa: F401
    flatten_grads,
    make_reducer,
    reduce_but_local,
)
from horovod.tensorflow.reduced import mark, not_reduced  # noqa: F401
from horovod.tensorflow.util import _executing_eagerly, tf_variable, variable_key

basics = hvd
none = hvd.Compression.none
key = variable_key


def make_aggregation(settings):
    if settings.backward_passes_per_step <= 1:
        return None
    options = {
        "backward_passes_per_step": settings.backward_passes_per_step,
        "allreduce_func": settings.allreduce_grads,
        "sparse_as_dense": settings.how.sparse_as_dense,
        "average_aggregated_gradients": settings.average_aggregated_gradients,
        "process_set": settings.process_set,
        "scale_local_gradients": settings.scale_local_gradients,
    }
    with tf.init_scope():
        if _executing_eagerly():
            return LocalGradientAggregationHelperEager(**options)
    return LocalGradientAggregationHelper(
        rank=hvd.rank(),
        optimizer_type=LocalGradientAggregationHelper._OPTIMIZER_TYPE_KERAS,
        name=settings.how.name,
        **options,
    )


def without_overflow(aggregation, sums):
    """Sums that have not travelled yet, made finite: loss scaling looks at them on each rank alone,
    and an overflow must be found by all ranks at once, when the sums have been reduced."""
    if not isinstance(aggregation, LocalGradientAggregationHelperEager):
        return sums
    is_waiting = tf.not_equal(aggregation.counter, 0)

    def made_finite(value):
        is_bad = tf.logical_and(is_waiting, tf.logical_not(tf.math.is_finite(value)))
        return tf.where(is_bad, tf.zeros_like(value), value)

    return [None if value is None else made_finite(value) for value in sums]


def compute_gradients(loss, var_list, tape, grad_loss=None):
    """(gradients, variables) of a loss, as minimize() would compute them."""
    if not callable(loss) and tape is None:
        raise ValueError("`tape` is required when a `Tensor` loss is passed.")
    if callable(loss):
        tape = tape or tf.GradientTape()
        with tape:
            if not callable(var_list):
                tape.watch([tf_variable(v) for v in var_list])
            loss = loss()
    variables = list(var_list() if callable(var_list) else var_list)
    return flatten_grads(tape.gradient(loss, variables, grad_loss)), variables


# ---- optimizers of Keras 2 ----


def _reduced(self, pairs):
    grads, variables = map(list, zip(*pairs, strict=True))
    return list(zip(self._allreduce(grads, variables), variables, strict=True))


def _apply_when_reduced(self, apply, args, kwargs):
    """apply_gradients() of Keras 2: with local aggregation only every n-th time."""
    aggregation = self._hvd.aggregation
    if aggregation is None:
        return apply(self, *args, **kwargs)
    pairs = list(args[0] if args else kwargs.pop("grads_and_vars"))
    if not getattr(self, "_built", True):
        with tf.init_scope():
            self.build([variable for _, variable in pairs])
    return aggregation.apply_gradients(
        lambda: apply(self, pairs, *args[1:], **kwargs), self, pairs, *args[1:], **kwargs
    )


def _members_keras2(base):
    class Members:
        def compute_gradients(self, loss, var_list, tape=None):
            return _reduced(self, base.compute_gradients(self, loss, var_list, tape))

        def _compute_gradients(self, loss, var_list, grad_loss=None, tape=None):
            return self.compute_gradients(loss, var_list, tape)

        def apply_gradients(self, *args, **kwargs):
            return _apply_when_reduced(self, base.apply_gradients, args, kwargs)

    return Members


def _members_legacy(base):
    class Members:
        def _compute_gradients(self, loss, var_list, grad_loss=None, tape=None):
            return _reduced(self, base._compute_gradients(self, loss, var_list, grad_loss, tape))

        def compute_gradients(self, loss, var_list, tape=None):
            return self._compute_gradients(loss, var_list, tape=tape)

        def get_gradients(self, loss, params):
            return self._allreduce(base.get_gradients(self, loss, params), params)

        def apply_gradients(self, *args, **kwargs):
            return _apply_when_reduced(self, base.apply_gradients, args, kwargs)

    return Members


def members_of(base):
    """Methods that differ from those of Keras 3, and attributes that graphs must see change."""
    if hasattr(base, "stateless_apply"):
        return [momentum.members_of(base)]
    if hasattr(base, "_compute_gradients"):
        return [_members_legacy(base)]
    return [_members_keras2(base), momentum.members_of(base)]


# ---- values ----


def evaluate(backend, op_or_result):
    if _executing_eagerly():
        return op_or_result
    return backend.get_session().run(op_or_result)


def _named(value, name):
    """(tensor, name of the collective); in graphs that follows from the tensor's name."""
    return tf.constant(value, name=name), name if _executing_eagerly() else None


def allreduce(backend, value, name, average, prescale_factor, postscale_factor, op, compression):
    tensor, name = _named(value, name)
    result = hvd.allreduce(
        tensor,
        name=name,
        average=average,
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
        op=op,
        compression=compression,
    )
    return evaluate(backend, result)


def allgather(backend, value, name):
    tensor, name = _named(value, name)
    return evaluate(backend, hvd.allgather(tensor, name=name))


def broadcast(backend, value, root_rank, name):
    tensor, name = _named(value, name)
    return evaluate(backend, hvd.broadcast(tensor, root_rank, name=name))


def reducescatter(backend, value, name, op):
    tensor, name = _named(value, name)
    return evaluate(backend, hvd.reducescatter(tensor, op=op, name=name))


def average(backend, values, device):
    with tf.device(device):
        return evaluate(backend, hvd.allreduce(tf.constant(values, name="metrics"), op=hvd.Average))


# ---- variables ----


def is_variable(variable):
    return hasattr(tf_variable(variable), "assign")


def read(backend, value):
    if not _executing_eagerly() and hasattr(backend, "get_value"):
        return float(backend.get_value(value))
    return float(tf.convert_to_tensor(tf_variable(value)))


def assign(backend, variable, number):
    """False if it is no variable."""
    if not _executing_eagerly() and hasattr(backend, "set_value"):
        backend.set_value(variable, number)
        return True
    if not is_variable(variable):
        return False
    tf_variable(variable).assign(number)
    return True


def copy(target, source):
    tf_variable(target).assign(tf_variable(source))


def before_variables(model):
    """Nothing: TensorFlow's variables hold their values at all times."""


def broadcast_global_variables(backend, root_rank):
    return evaluate(backend, hvd.broadcast_global_variables(root_rank))


def broadcast_state(backend, variables, root_rank, device):
    with tf.device(device):
        if _executing_eagerly():
            hvd.broadcast_variables(variables, root_rank=root_rank)
        else:
            broadcast_global_variables(backend, root_rank)
