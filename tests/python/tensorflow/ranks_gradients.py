# SPDX-License-Identifier: Apache-2.0
"""Gradients of collectives, the tape, and local aggregation."""

import horovod.tensorflow as hvd
import numpy as np
import pytest
import tensorflow as tf

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
WEIGHT = RANK + 1.0
TOTAL = SIZE * (SIZE + 1) / 2


def gradient(function, shape=(2, 2)):
    """d(sum(function(x) * weight))/dx, the same eager and in tf.function."""
    x = tf.ones(shape) * WEIGHT

    def run(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(function(x) * WEIGHT)
        return tape.gradient(loss, x)

    eager, graph = run(x).numpy(), tf.function(run)(x).numpy()
    assert np.allclose(eager, graph)
    return eager


def test_allreduce():
    assert np.allclose(gradient(lambda x: hvd.allreduce(x, op=hvd.Sum)), TOTAL)
    assert np.allclose(gradient(lambda x: hvd.allreduce(x)), TOTAL / SIZE)
    scaled = gradient(lambda x: hvd.allreduce(x, op=hvd.Sum, prescale_factor=0.5))
    assert np.allclose(scaled, TOTAL / 2)


def test_grouped_allreduce():
    result = gradient(lambda x: tf.add_n(hvd.grouped_allreduce([x, 2 * x], op=hvd.Sum)))
    assert np.allclose(result, 3 * TOTAL)


def test_allgather():
    assert np.allclose(gradient(hvd.allgather, (RANK + 1, 2)), TOTAL / SIZE)
    result = gradient(lambda x: hvd.grouped_allgather([x, x])[1], (RANK + 1, 2))
    assert np.allclose(result, TOTAL / SIZE)


def test_broadcast():
    expected = TOTAL / SIZE if RANK == 1 else 0
    assert np.allclose(gradient(lambda x: hvd.broadcast(x, 1)), expected)


def test_alltoall():
    result = gradient(lambda x: hvd.alltoall(x, [1] * SIZE)[0], (SIZE, 2))
    assert np.allclose(result, np.arange(1.0, SIZE + 1)[:, None])


def test_reducescatter():
    parts = np.arange(1.0, SIZE + 1)[:, None]
    total = gradient(lambda x: hvd.reducescatter(x, op=hvd.Sum), (SIZE, 2))
    assert np.allclose(total, parts * SIZE)
    assert np.allclose(gradient(hvd.reducescatter, (SIZE, 2)), parts)


def losses(a, b):
    return tf.reduce_sum(a) * WEIGHT + tf.reduce_sum(b) * RANK


@pytest.mark.parametrize("groups", [None, 1, 2, 5, "lists"])
def test_tape(groups):
    a, b, unused = tf.Variable([1.0, 2.0]), tf.Variable([[1.0]]), tf.Variable(3.0)
    groups = [[a, b]] if groups == "lists" else groups

    def step():
        with tf.GradientTape() as tape:
            loss = losses(a, b)
        tape = hvd.DistributedGradientTape(tape, groups=groups)
        return tape.gradient(loss, [a, b, unused])

    for grads in (step(), tf.function(step)()):
        assert np.allclose(grads[0], TOTAL / SIZE)
        assert np.allclose(grads[1], (SIZE - 1) / 2)
        assert grads[2] is None


def test_tape_around_the_computation():
    a, b = tf.Variable([1.0, 2.0]), tf.Variable([[1.0]])
    with hvd.DistributedGradientTape(tf.GradientTape(persistent=True)) as tape:
        loss = losses(a, b)
    assert isinstance(tape, tf.GradientTape) and type(tape).__name__ == "GradientTape"
    for _ in range(2):
        assert np.allclose(tape.gradient(loss, [a, b])[0], TOTAL / SIZE)


def test_predivide_and_sum():
    a, b = tf.Variable([1.0, 2.0]), tf.Variable([[1.0]])
    for options, expected in (
        ({"gradient_predivide_factor": 4.0}, TOTAL / SIZE),
        ({"op": hvd.Sum}, TOTAL),
    ):
        with tf.GradientTape() as tape:
            loss = losses(a, b)
        tape = hvd.DistributedGradientTape(tape, **options)
        assert np.allclose(tape.gradient(loss, [a, b])[0], expected)
    with pytest.raises(ValueError, match="gradient_predivide_factor"):
        hvd.DistributedGradientTape(tf.GradientTape(), op=hvd.Sum, gradient_predivide_factor=2.0)


def test_local_layers():
    first, second = tf.keras.layers.Dense(1), tf.keras.layers.Dense(1)
    first.build((None, 2))
    second.build((None, 1))
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(second(first(tf.ones([1, 2])))) * WEIGHT
    tape = hvd.PartialDistributedGradientTape(tape, local_layers=second)
    sources = [*first.trainable_weights, *second.trainable_weights]
    grads = tape.gradient(loss, sources)
    assert np.allclose(grads[3], WEIGHT / SIZE)
    gathered = hvd.allgather(tf.reshape(grads[0], [1, -1])).numpy()
    assert np.allclose(gathered, gathered[0])
    with pytest.raises(ValueError, match="All local layers"):
        hvd.PartialDistributedGradientTape(tf.GradientTape(), local_layers=[3])


def test_sparse_gradients():
    table = tf.Variable(tf.ones([4, 2]))
    for is_dense in (False, True):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.gather(table, [RANK, 3])) * WEIGHT
        tape = hvd.DistributedGradientTape(tape, sparse_as_dense=is_dense)
        (grad,) = tape.gradient(loss, [table])
        assert isinstance(grad, tf.IndexedSlices) != is_dense
        expected = np.zeros((4, 2))
        for rank in range(SIZE):
            expected[rank] += (rank + 1) / SIZE
            expected[3] += (rank + 1) / SIZE
        assert np.allclose(tf.convert_to_tensor(grad), expected)


@pytest.mark.parametrize("is_averaged", [False, True])
def test_aggregation(is_averaged):
    helper = hvd.LocalGradientAggregationHelperEager(
        backward_passes_per_step=2,
        allreduce_func=lambda grads, variables: [
            None if g is None else hvd.allreduce(g, op=hvd.Average) for g in grads
        ],
        sparse_as_dense=True,
        average_aggregated_gradients=is_averaged,
    )
    variable, unused = tf.Variable([0.0, 0.0]), tf.Variable(0.0)
    step = tf.function(lambda g: helper.compute_gradients([g, None], [variable, unused])[0])
    mean = TOTAL / SIZE
    for value in (np.inf, 1.0, 2.0):
        step(tf.constant([value, 1.0]) * WEIGHT)
        result = step(tf.constant([value, 3.0]) * WEIGHT)
        scale = 0.5 if is_averaged else 1.0
        assert np.allclose(result, [2 * value * mean * scale, 4 * mean * scale])
        assert helper.counter.numpy() == 0
    with pytest.raises(ValueError, match="must be > 0"):
        hvd.LocalGradientAggregationHelperEager(0, None, False, False)


def test_sync_batch_normalization():
    data = np.random.RandomState(1).rand(4 * SIZE, 3).astype("float32") * 7
    layer = hvd.SyncBatchNormalization(momentum=0.0)
    output = layer(tf.constant(data[4 * RANK : 4 * RANK + 4]), training=True)
    expected = (data - data.mean(0)) / np.sqrt(data.var(0) + 1e-3)
    assert np.allclose(output, expected[4 * RANK : 4 * RANK + 4], atol=1e-3)
    assert np.allclose(layer.moving_mean.numpy(), data.mean(0), atol=1e-4)
    with pytest.raises(ValueError, match="fused"):
        hvd.SyncBatchNormalization(fused=True)
