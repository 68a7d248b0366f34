# SPDX-License-Identifier: Apache-2.0
"""Collectives inside functions that XLA compiles."""

import horovod.tensorflow as hvd
import horovod.tensorflow.keras as hvd_keras
import numpy as np
import pytest
import tensorflow as tf
from horovod.tensorflow import xla_ops

keras = tf.keras
hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()

pytestmark = pytest.mark.skipif(not xla_ops.is_available(), reason="no custom calls here")


def test_collectives():
    @tf.function(jit_compile=True)
    def compiled(x):
        first, second = hvd.grouped_allreduce([x * 2, x + 1], op=hvd.Sum)
        return hvd.allreduce(x), first, second, hvd.broadcast(x, 1), hvd.allreduce(x)

    x = tf.constant([1.0, 2.0])
    for _ in range(3):
        mean, first, second, root, again = compiled(x * (RANK + 1))
        total = SIZE * (SIZE + 1) / 2
        assert np.allclose(mean, x * total / SIZE) and np.allclose(again, mean)
        assert np.allclose(first, 2 * x * total) and np.allclose(second, x * total + SIZE)
        assert np.allclose(root, 2 * x)


def test_compression():
    """Ranks that share memory convert nothing; other types are cast."""

    @tf.function(jit_compile=True)
    def compiled(x, y):
        options = {"op": hvd.Sum, "compression": hvd.Compression.bf16}
        return hvd.allreduce(x, **options), hvd.allreduce(y, **options)

    x = tf.constant([1.0 + 2.0**-12, 2.0])
    single, double = compiled(x, tf.cast(x, tf.float64))
    assert np.array_equal(single, x * SIZE)
    assert np.array_equal(double, np.array([1.0, 2.0]) * SIZE)


def test_gradient():
    @tf.function(jit_compile=True)
    def compiled(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(hvd.allreduce(x, op=hvd.Sum) * (RANK + 1))
        return tape.gradient(loss, x)

    assert np.allclose(compiled(tf.ones([3])), SIZE * (SIZE + 1) / 2)


def test_error_and_afterwards():
    compiled = tf.function(lambda x: hvd.allreduce(x, op=hvd.Sum), jit_compile=True)
    with pytest.raises(tf.errors.InternalError, match="Mismatched ALLREDUCE tensor shapes"):
        compiled(tf.ones([2 + RANK]))
    assert np.allclose(compiled(tf.ones([5])), SIZE)


@pytest.mark.parametrize("name", ["allgather", "alltoall", "reducescatter", "grouped_allgather"])
def test_others_are_refused_in_one_line(name):
    function = getattr(hvd, name)
    argument = [tf.ones([SIZE])] if name.startswith("grouped") else tf.ones([SIZE])
    compiled = tf.function(lambda: function(argument), jit_compile=True)
    with pytest.raises(NotImplementedError, match=f"hvd.{name}.. can't be part of a function"):
        compiled()
    assert np.allclose(hvd.allreduce(tf.ones([5]), op=hvd.Sum), SIZE)


def test_fit():
    data = np.random.RandomState(0).rand(64, 8).astype("float32")
    target = data.sum(1, keepdims=True)
    weights = []
    for is_compiled in (False, True):
        keras.utils.set_random_seed(1)
        model = keras.Sequential(
            [keras.layers.Input((8,)), keras.layers.Dense(4, "relu"), keras.layers.Dense(1)]
        )
        optimizer = hvd_keras.DistributedOptimizer(keras.optimizers.Adam(0.01))
        model.compile(optimizer, "mse", jit_compile=is_compiled)
        mine = slice(RANK, None, SIZE)
        model.fit(data[mine], target[mine], batch_size=8, epochs=2, verbose=0, shuffle=False)
        weights.append(model.get_weights())
    for plain, compiled in zip(*weights, strict=True):
        assert np.allclose(plain, compiled, atol=1e-5)
