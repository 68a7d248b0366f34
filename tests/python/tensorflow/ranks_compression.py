# SPDX-License-Identifier: Apache-2.0
"""Compression.fp16 and .bf16: float32 is converted by the core, and only where it leaves memory
that ranks share; everything else is cast."""

import os

import horovod.tensorflow as hvd
import numpy as np
import pytest
import tensorflow as tf

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
HAS_NETWORK = "HOROVOD_SHM_DISABLE" in os.environ and SIZE > 1
COMPRESSIONS = [hvd.Compression.fp16, hvd.Compression.bf16]
# Each number is rounded once, and a sum once per hop.
TOLERANCE = {hvd.Compression.fp16: (SIZE + 1) / 2048, hvd.Compression.bf16: (SIZE + 1) / 256}


def values(rank, count=10007):
    return np.random.default_rng(rank).standard_normal(count).astype(np.float32)


def same_everywhere(array):
    rows = hvd.allgather(tf.reshape(tf.convert_to_tensor(array), [1, -1])).numpy()
    assert all(np.array_equal(row, rows[0]) for row in rows)


def check(result, plain, compression, op):
    result, plain = result.numpy(), plain.numpy()
    scale = sum(np.abs(values(rank)) for rank in range(SIZE)) / (1 if op == hvd.Sum else SIZE)
    assert result.dtype == np.float32
    assert np.all(np.abs(result - plain) <= scale * TOLERANCE[compression])
    assert np.array_equal(result, plain) != HAS_NETWORK
    same_everywhere(result)


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("op", [hvd.Sum, hvd.Average])
@pytest.mark.parametrize("is_graph", [False, True])
def test_values(compression, op, is_graph):
    def reduce(x):
        one = hvd.allreduce(x, op=op, compression=compression, name="one")
        several = hvd.grouped_allreduce([x, x], op=op, compression=compression, name="several")
        return [one, *several]

    mine = tf.constant(values(RANK))
    plain = hvd.allreduce(mine, op=op)
    for result in (tf.function(reduce) if is_graph else reduce)(mine):
        check(result, plain, compression, op)


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_other_types_are_cast(compression):
    mine = tf.constant(values(RANK), dtype=tf.float64)
    result = hvd.allreduce(mine, op=hvd.Sum, compression=compression)
    assert result.dtype == tf.float64
    expected = sum(values(rank) for rank in range(SIZE))
    assert np.allclose(result.numpy(), expected, rtol=0.05, atol=0.05)
    whole = tf.constant([RANK, 1])
    result = hvd.allreduce(whole, op=hvd.Sum, compression=compression)
    assert result.numpy().tolist() == [sum(range(SIZE)), SIZE]


def test_derived_compressor():
    calls = []

    class Counting(hvd.Compression.bf16):
        @classmethod
        def compress(cls, tensor):
            calls.append(tensor)
            return super().compress(tensor)

    hvd.allreduce(tf.constant(values(RANK)), compression=Counting)
    hvd.grouped_allreduce([tf.constant(values(RANK))], compression=Counting)
    assert len(calls) == 2


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_gradient_of_allreduce(compression):
    x = tf.Variable(values(RANK))
    with tf.GradientTape() as tape:
        y = tf.reduce_sum(hvd.allreduce(x, op=hvd.Sum, compression=compression))
    assert np.array_equal(tape.gradient(y, x).numpy(), np.full(10007, SIZE, np.float32))


def sent_bytes():
    return sum(link["sent_bytes"] for link in hvd.metrics()["links"])


@pytest.mark.skipif(not HAS_NETWORK, reason="nothing travels")
@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_bytes(compression):
    mine = tf.constant(values(RANK, 300_000))
    start = sent_bytes()
    hvd.allreduce(mine, name="bytes")
    plain = sent_bytes() - start
    hvd.allreduce(mine, name="bytes_small", compression=compression)
    assert plain > 0 and (sent_bytes() - start - plain) * 2 == plain


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("is_graph", [False, True])
def test_training(compression, is_graph):
    """Like one process with the whole batch."""

    def make():
        rng = np.random.default_rng(3)
        shapes = [(16, 40), (40,), (40, 3), (3,)]
        return [tf.Variable((rng.standard_normal(s) / 4).astype(np.float32)) for s in shapes]

    def loss_of(weights, x, y):
        hidden = tf.nn.relu(x @ weights[0] + weights[1])
        logits = hidden @ weights[2] + weights[3]
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits))

    def step(weights, x, y, wrap):
        with tf.GradientTape() as tape:
            loss = loss_of(weights, x, y)
        for weight, grad in zip(weights, wrap(tape).gradient(loss, weights), strict=True):
            weight.assign_sub(0.2 * grad)

    def share(x, y):
        distributed = lambda tape: hvd.DistributedGradientTape(tape, compression=compression)  # noqa: E731
        step(mine, x, y, distributed)

    mine, alone = make(), make()
    share = tf.function(share) if is_graph else share
    for number in range(20):
        rng = np.random.default_rng(number)
        x, y = rng.standard_normal((12, 16)).astype(np.float32), rng.integers(0, 3, 12)
        part = slice(RANK * (12 // SIZE), (RANK + 1) * (12 // SIZE))
        share(tf.constant(x[part]), tf.constant(y[part]))
        step(alone, tf.constant(x), tf.constant(y), lambda tape: tape)
    tolerance = 0.05 if HAS_NETWORK else 1e-5
    for weight, other in zip(mine, alone, strict=True):
        assert np.allclose(weight.numpy(), other.numpy(), rtol=tolerance, atol=tolerance)
        same_everywhere(weight)


def test_keras():
    keras = tf.keras
    optimizer = hvd.DistributedOptimizer(
        keras.optimizers.SGD(0.1), compression=hvd.Compression.bf16
    )
    weight = tf.Variable(np.zeros(1000, np.float32))
    gradient = tf.constant(values(RANK, 1000))
    if hasattr(optimizer, "minimize"):  # Keras 2 reduces when it computes gradients
        optimizer.minimize(lambda: tf.reduce_sum(weight * gradient), [weight])
    else:
        optimizer.apply_gradients([(gradient, weight)])
    expected = -0.1 * np.mean([values(rank, 1000) for rank in range(SIZE)], axis=0)
    assert np.allclose(weight.numpy(), expected, atol=0.01 if HAS_NETWORK else 1e-6)
    same_everywhere(weight)


@pytest.mark.skipif(SIZE == 1, reason="there is no other rank")
def test_ranks_that_differ():
    compression = hvd.Compression.bf16 if RANK == SIZE - 1 else hvd.Compression.none
    with pytest.raises(tf.errors.OpError, match="Mismatched compression"):
        hvd.allreduce(tf.constant(values(RANK)), name="differ", compression=compression)
    assert hvd.allreduce(tf.constant([1.0]), op=hvd.Sum).numpy() == [SIZE]
