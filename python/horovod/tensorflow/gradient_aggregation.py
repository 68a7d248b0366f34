# SPDX-License-Identifier: Apache-2.0
"""Sums gradients over several backward passes before they travel (graphs of TensorFlow 1)."""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.tensorflow.gradient_aggregation_eager import _Aggregation, densify
from horovod.tensorflow.util import tf_variable, variable_key

_IS_TF2 = True


def apply_op_to_not_none_tensors(tensor_op, tensors, *args):
    return [tensor_op(t, *args) if t is not None else t for t in tensors]


def get_not_none_from_list(tensor_list):
    return [t for t in tensor_list if t is not None]


class LocalGradientAggregationHelper(_Aggregation):
    """Keeps running sums in local variables of the graph."""

    _OPTIMIZER_TYPE_KERAS = "optimizer_type_keras"
    _OPTIMIZER_TYPE_LEGACY = "optimizer_type_legacy"

    def __init__(
        self,
        backward_passes_per_step: int,
        allreduce_func: Callable,
        sparse_as_dense: bool,
        average_aggregated_gradients: bool,
        rank: int,
        optimizer_type: int,
        process_set: ProcessSet = global_process_set,
        scale_local_gradients: bool = True,
        name: str = "",
    ) -> None:
        super().__init__(
            *(backward_passes_per_step, allreduce_func, sparse_as_dense),
            *(average_aggregated_gradients, process_set, scale_local_gradients),
        )
        self.rank = rank
        self.optimizer_type = optimizer_type
        self._name = name
        self.locally_aggregated_grads = []
        self._sums = {}  # the same, by variable_key() of the variables they belong to
        self._numbers = set()
        self.counter: Any = None

    def _local_variable(self, name, shape, dtype, collections=()):
        return tf.compat.v1.get_variable(
            name,
            shape=shape,
            dtype=dtype,
            trainable=False,
            initializer=tf.compat.v1.zeros_initializer(),
            collections=[tf.compat.v1.GraphKeys.LOCAL_VARIABLES, *collections],
        )

    def _make_sum(self, index, grad, var):
        while index in self._numbers:
            index += 1
        self._numbers.add(index)
        made = self._local_variable(
            str(index), tf_variable(var).shape, grad.dtype, ["aggregating_collection"]
        )
        self._sums[variable_key(var)] = made
        self.locally_aggregated_grads.append(made)
        return made

    def _forget_other_graph(self):
        if self.counter is None or self.counter.graph is tf.compat.v1.get_default_graph():
            return
        self.counter = None
        self._sums, self._numbers, self.locally_aggregated_grads = {}, set(), []

    def _init_aggregation_vars(self, grads, vars):
        """Makes what is not there yet; gives the sums of the gradients that are not None.

        Sums belong to variables: between two calls a layer may have been frozen or added.
        """
        self._forget_other_graph()
        new = []
        present = [i for i, grad in enumerate(grads) if grad is not None]
        with tf.compat.v1.variable_scope(f"aggregation_variables_{self._name}{self.rank}"):
            if self.counter is None:
                self.counter = self._local_variable("aggregation_counter", (), tf.int32)
                new.append(self.counter)
            for i in present:
                if variable_key(vars[i]) not in self._sums:
                    new.append(self._make_sum(i, grads[i], vars[i]))
        if new and self.optimizer_type == self._OPTIMIZER_TYPE_KERAS:
            session = tf.compat.v1.keras.backend.get_session()
            session.run(tf.compat.v1.variables_initializer(new))
        return [self._sums[variable_key(vars[i])] for i in present]

    def _clear(self):
        """The sums start from zero when the counter does; zeros, not multiples: inf * 0 is nan."""
        updates = [g.assign(tf.zeros_like(g)) for g in self.locally_aggregated_grads]
        return tf.group(*updates)

    def compute_gradients(self, grads: Sequence, vars: Sequence) -> list:
        """Gradients of this pass, or every n-th time the reduced sums of n passes."""
        grads, vars = [densify(grad, self.sparse_as_dense) for grad in grads], list(vars)
        totals = self._init_aggregation_vars(grads, vars)
        present = [index for index, grad in enumerate(grads) if grad is not None]
        own = [grads[i] for i in present]
        clear = tf.cond(tf.equal(self.counter, 0), self._clear, tf.no_op)
        with tf.control_dependencies([clear]):
            added = [total.assign_add(grad) for total, grad in zip(totals, own, strict=True)]
        with tf.control_dependencies([tf.group(*added)]):
            count = self.counter.assign_add(tf.constant(1))

        def reduce():
            sums = [total.read_value() for total in totals]
            results = self._reduce(sums, [vars[i] for i in present])
            results = [tf.convert_to_tensor(r) for r in results]
            with tf.control_dependencies([self.counter.assign(tf.constant(0))]):
                if self.average_aggregated_gradients:
                    return [r / self.backward_passes_per_step for r in results]
                return [tf.identity(r) for r in results]

        with tf.control_dependencies([count]):
            results = tf.cond(
                tf.equal(count, self.backward_passes_per_step),
                reduce,
                lambda: [tf.identity(grad) for grad in own],
            )
        outputs = [None] * len(grads)
        for index, result in zip(present, tf.nest.flatten(results), strict=True):
            outputs[index] = result
        return outputs

    def apply_gradients(
        self,
        apply_grads_closure: Callable,
        optimizer: Any,
        grads_and_vars: Any,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        """Applies after a reduction; otherwise only the step counters go on."""
        gradients = [grad for grad, _ in grads_and_vars if grad is not None]
        global_step = kwargs.get("global_step", args[0] if args else None)

        def skip():
            updates = []
            if hasattr(optimizer, "iterations"):
                updates.append(optimizer.iterations.assign_add(1))
            if global_step is not None:
                updates.append(global_step.assign_add(1))
            return tf.group(*updates)

        def apply():
            return tf.group(apply_grads_closure())

        with tf.control_dependencies([tf.group(*gradients)]):
            counter = self.counter.read_value()
            return tf.cond(tf.equal(counter, 0), apply, skip)
