# SPDX-License-Identifier: Apache-2.0
"""Sums gradients over several backward passes before they travel (eager mode and tf.function)."""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.tensorflow.util import tf_variable, variable_key

_IS_TF2 = True
_POST_TF_2_4_0 = True


def _scale_local(grad, process_set):
    """A gradient that is not averaged must be as small as those that are."""
    if grad is None:
        return None
    if isinstance(grad, tf.IndexedSlices):
        return tf.IndexedSlices(
            grad.values / tf.cast(process_set.size(), grad.values.dtype),
            grad.indices,
            dense_shape=grad.dense_shape,
        )
    return grad / tf.cast(process_set.size(), grad.dtype)


def reduce_but_local(grads, variables, local_keys, reduce, process_set, is_scaled):
    """Reduces all gradients but those of local variables, which are divided by the set's size."""
    results = list(grads)
    is_local = [variable_key(v) in local_keys for v in variables]
    shared = [index for index in range(len(results)) if not is_local[index]]
    reduced = reduce([grads[i] for i in shared], [variables[i] for i in shared])
    for index, result in zip(shared, reduced, strict=True):
        results[index] = result
    if is_scaled:
        for index in range(len(results)):
            if is_local[index]:
                results[index] = _scale_local(results[index], process_set)
    return results


def densify(grad, sparse_as_dense):
    """Sums are kept in dense variables."""
    if not isinstance(grad, tf.IndexedSlices):
        return grad
    if not sparse_as_dense:
        raise ValueError(
            "IndexedSlices are not supported when `backward_passes_per_step` > 1 and "
            "`sparse_as_dense` is False."
        )
    return tf.convert_to_tensor(grad)


class _Aggregation:
    """What aggregation is in eager mode and in graphs: settings, local variables, reduction."""

    def __init__(self, passes, reduce, sparse_as_dense, is_averaged, process_set, is_scaled):
        if passes <= 0:
            raise ValueError("backward_passes_per_step must be > 0")
        self.backward_passes_per_step = passes
        self.allreduce_grads = reduce
        self.sparse_as_dense = sparse_as_dense
        self.average_aggregated_gradients = is_averaged
        self.process_set = process_set
        self.scale_local_gradients = is_scaled
        self._local_vars = set()

    def register_local_var(self, var: Any) -> None:
        """Gradients of this variable are not reduced."""
        self._local_vars.add(variable_key(var))

    def _reduce(self, grads, vars):
        return reduce_but_local(
            *(grads, vars, self._local_vars, self.allreduce_grads),
            *(self.process_set, self.scale_local_gradients),
        )


class LocalGradientAggregationHelperEager(_Aggregation):
    """Keeps running sums; every `backward_passes_per_step`-th call reduces and clears them.

    Sums belong to variables, not to positions: a layer that is frozen or added between two calls
    leaves the sums of others alone. What a variable has gathered when it drops out is forgotten at
    the end of the step.
    """

    def __init__(
        self,
        backward_passes_per_step: int,
        allreduce_func: Callable,
        sparse_as_dense: bool,
        average_aggregated_gradients: bool,
        process_set: ProcessSet = global_process_set,
        scale_local_gradients: bool = True,
    ) -> None:
        super().__init__(
            *(backward_passes_per_step, allreduce_func, sparse_as_dense),
            *(average_aggregated_gradients, process_set, scale_local_gradients),
        )
        with tf.init_scope():
            self.counter = tf.Variable(0, trainable=False)
        self.locally_aggregated_grads = {}  # by variable_key(), or by position without variables

    def _accumulator(self, index, grad, var):
        key = index if var is None else variable_key(var)
        if key not in self.locally_aggregated_grads:
            # A symbolic gradient may not know its shape; its variable does.
            shape = tf_variable(var).shape if var is not None else grad.shape
            with tf.init_scope():
                self.locally_aggregated_grads[key] = tf.Variable(
                    tf.zeros(shape, dtype=grad.dtype), trainable=False
                )
        return self.locally_aggregated_grads[key]

    def compute_gradients(self, grads: Sequence, vars: Sequence) -> list:
        """Adds grads to the sums; gives the reduced sums, or the sums so far."""
        vars = list(vars) if vars is not None else [None] * len(grads)
        grads = [densify(grad, self.sparse_as_dense) for grad in grads]
        sums = [
            None if grad is None else self._accumulator(index, grad, var)
            for index, (grad, var) in enumerate(zip(grads, vars, strict=True))
        ]
        added = [
            None if total is None else total.assign_add(grad)
            for grad, total in zip(grads, sums, strict=True)
        ]
        count = self.counter.assign_add(1)
        present = [index for index, total in enumerate(sums) if total is not None]

        def reduce():
            with tf.control_dependencies([added[i] for i in present]):
                totals = [None if s is None else s.read_value() for s in sums]
            reduced = self._reduce(totals, vars)
            results = [tf.convert_to_tensor(reduced[i]) for i in present]
            if self.average_aggregated_gradients:
                results = [r / tf.cast(self.backward_passes_per_step, r.dtype) for r in results]
            with tf.control_dependencies(results):
                every = list(self.locally_aggregated_grads.values())
                clears = [total.assign(tf.zeros_like(total)) for total in every]
                clears.append(self.counter.assign(0))
            with tf.control_dependencies(clears):
                return [tf.identity(r) for r in results]

        def keep():
            return [tf.identity(sums[i]) for i in present]

        results = tf.cond(tf.equal(count, self.backward_passes_per_step), reduce, keep)
        outputs = [None] * len(grads)
        for index, result in zip(present, tf.nest.flatten(results), strict=True):
            outputs[index] = result
        return outputs

    def apply_gradients(
        self, apply_grads_closure: Callable, optimizer: Any, *args: Any, **kwargs: Any
    ) -> Any:
        """Calls the closure when a reduction has just happened, else only counts the step."""

        def apply():
            apply_grads_closure()
            return tf.constant(True)

        def skip():
            if hasattr(optimizer, "iterations"):
                optimizer.iterations.assign_add(1)
            return tf.constant(False)

        return tf.cond(tf.equal(self.counter, 0), apply, skip)
