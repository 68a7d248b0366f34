# SPDX-License-Identifier: Apache-2.0
"""Gradients are reduced exactly once per update, whatever computes, changes and applies them.

Each rank's loss has another slope, so that a reduction too few leaves ranks apart and one too many
shows in the weights.
"""

import horovod.tensorflow as hvd
import horovod.tensorflow.keras as hvd_keras
import numpy as np
import pytest
import tensorflow as tf
from horovod.tensorflow.util import tf_variable

keras = tf.keras
hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
IS_KERAS_3 = hasattr(keras.optimizers.SGD, "stateless_apply")
TOTAL = SIZE * (SIZE + 1) / 2
OPS = {"sum": (hvd.Sum, TOTAL), "average": (hvd.Average, TOTAL / SIZE)}
RATE, STEPS = 0.5, 4

keras_3 = pytest.mark.skipif(not IS_KERAS_3, reason="Keras 2 does not reduce in apply_gradients()")
each_op = pytest.mark.parametrize("op", list(OPS))
each_mode = pytest.mark.parametrize("is_graph", [False, True], ids=["eager", "function"])


def value(variable):
    return np.asarray(tf.convert_to_tensor(tf_variable(variable)))


class Line:
    """A variable whose gradient is RANK + 1."""

    def __init__(self, op, **options):
        self.slope = OPS[op][1]
        self.w = tf.Variable(10.0) if not IS_KERAS_3 else keras.Variable(10.0)
        self.optimizer = hvd_keras.DistributedOptimizer(
            keras.optimizers.SGD(RATE), op=OPS[op][0], **options
        )
        self.optimizer.build([self.w])

    def loss(self):
        return tf.convert_to_tensor(tf_variable(self.w)) * (RANK + 1.0)

    def raw(self, wrap=lambda tape: tape):
        with tf.GradientTape() as tape:
            loss = self.loss()
        return wrap(tape).gradient(loss, [tf_variable(self.w)])

    def reduced(self):
        with tf.GradientTape() as tape:
            loss = self.loss()
        pairs = self.optimizer.compute_gradients(loss, [self.w], tape=tape)
        return [grad for grad, _ in pairs]

    def minimize(self):
        with tf.GradientTape() as tape:
            loss = self.loss()
        self.optimizer.minimize(loss, [self.w], tape=tape)

    def apply(self, grads):
        self.optimizer.apply_gradients([(grads[0], self.w)])

    def check(self, steps, slope=None):
        expected = 10.0 - RATE * steps * (self.slope if slope is None else slope)
        assert np.allclose(value(self.w), expected), (value(self.w), expected)


def repeat(step, is_graph):
    step = tf.function(step) if is_graph else step
    for _ in range(STEPS):
        step()


@pytest.mark.parametrize("gradients", [pytest.param("raw", marks=keras_3), "reduced"])
@each_op
@each_mode
def test_apply(op, is_graph, gradients):
    line = Line(op)
    repeat(lambda: line.apply(getattr(line, gradients)()), is_graph)
    line.check(STEPS)


@each_op
@each_mode
def test_minimize(op, is_graph):
    line = Line(op)
    repeat(line.minimize, is_graph)
    line.check(STEPS)


@keras_3
@each_op
@each_mode
@pytest.mark.parametrize("is_looked_in_graph", [False, True], ids=["eagerly", "traced"])
def test_only_looked_at(op, is_graph, is_looked_in_graph):
    line = Line(op)
    look = tf.function(line.reduced) if is_looked_in_graph else line.reduced
    assert np.allclose(look()[0], line.slope)
    if op == "sum" and not is_graph:
        # Eagerly, a gradient of a variable of which there were reduced ones could be either.
        with pytest.raises(ValueError, match="has been reduced"):
            line.apply(line.raw())
        line.check(0)
        return
    repeat(lambda: line.apply(line.raw()), is_graph)
    line.check(STEPS)
    assert np.allclose(look()[0], line.slope)
    repeat(lambda: line.apply(line.raw()), is_graph)
    line.check(2 * STEPS)


@each_op
@each_mode
def test_changed_in_between(op, is_graph):
    line = Line(op)

    def step():
        line.apply([tf.clip_by_value(grad, -0.25, 0.25) for grad in line.reduced()])

    if IS_KERAS_3 and op == "sum" and not is_graph:
        with pytest.raises(ValueError, match="has been reduced"):
            step()
        return
    repeat(step, is_graph)
    line.check(STEPS, slope=0.25)


@each_op
def test_computed_in_a_function_of_its_own(op):
    line = Line(op)
    compute = tf.function(line.reduced)

    @tf.function
    def step():
        line.apply([grad * 2.0 for grad in compute()])

    for _ in range(STEPS):
        step()
    line.check(STEPS, slope=2 * line.slope)
    if IS_KERAS_3 and op == "sum":
        with pytest.raises(ValueError, match="has been reduced"):
            line.apply(compute())
        with pytest.raises(ValueError, match="has been reduced"):
            tf.function(lambda grad: line.apply([grad]))(compute()[0])
        return
    line.apply(compute())
    line.check(1 + 2 * STEPS)


@each_op
@each_mode
@pytest.mark.parametrize("is_minimized", [False, True], ids=["applied", "minimized"])
def test_tape_and_wrapped_optimizer(op, is_graph, is_minimized):
    line = Line(op)

    def wrap(tape):
        return hvd.DistributedGradientTape(tape, op=hvd.Sum)

    def step():
        if not is_minimized:
            line.apply(line.raw(wrap))
            return
        with tf.GradientTape() as tape:
            loss = line.loss()
        line.optimizer.minimize(loss, [line.w], tape=wrap(tape))

    repeat(step, is_graph)
    line.check(STEPS, slope=TOTAL)


@keras_3
@each_op
@each_mode
def test_some_gradients_of_a_tape(op, is_graph):
    line = Line(op)
    other = keras.Variable(1.0)
    line.optimizer = hvd_keras.DistributedOptimizer(keras.optimizers.SGD(RATE), op=OPS[op][0])
    line.optimizer.build([line.w, other])

    def step():
        (ready,) = line.raw(lambda tape: hvd.DistributedGradientTape(tape, op=hvd.Sum))
        with tf.GradientTape() as tape:
            loss = tf.convert_to_tensor(other.value) * (RANK + 1.0)
        (raw,) = tape.gradient(loss, [other.value])
        line.optimizer.apply_gradients([(ready, line.w), (raw, other)])

    repeat(step, is_graph)
    line.check(STEPS, slope=TOTAL)
    assert np.allclose(value(other), 1.0 - RATE * STEPS * OPS[op][1])


@each_op
@each_mode
def test_several_passes_per_step(op, is_graph):
    line = Line(op, backward_passes_per_step=2)
    repeat(line.minimize, is_graph)
    line.check(STEPS)
