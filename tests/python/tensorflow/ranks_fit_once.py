# SPDX-License-Identifier: Apache-2.0
"""model.fit reduces gradients exactly once, compared with one process that sees all the data."""

import functools
import os

import horovod.tensorflow as hvd
import horovod.tensorflow.keras as hvd_keras
import numpy as np
import pytest
import tensorflow as tf

keras = tf.keras
hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
IS_KERAS_3 = hasattr(keras.optimizers.SGD, "stateless_apply")
OPS = {"sum": (hvd.Sum, 0.1 / SIZE), "average": (hvd.Average, 0.1)}

keras_3 = pytest.mark.skipif(not IS_KERAS_3, reason="another optimizer in Keras 2")
each_op = pytest.mark.parametrize("op", list(OPS))

BATCH = 8
DATA = np.random.RandomState(0).rand(128, 6).astype("float32")
LABELS = DATA.sum(1, keepdims=True).astype("float32")


def my_rows():
    return np.arange(128).reshape(-1, SIZE, BATCH)[:, RANK].reshape(-1)


class OwnStep(keras.Model):
    """Applies gradients in a train_step of its own."""

    def __init__(self):
        super().__init__()
        self.first, self.last = keras.layers.Dense(4, activation="tanh"), keras.layers.Dense(1)

    def call(self, x):
        return self.last(self.first(x))

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self(x, training=True) - y) ** 2)
        if IS_KERAS_3:
            grads = tape.gradient(loss, self.trainable_variables)
            self.optimizer.apply_gradients(zip(grads, self.trainable_variables, strict=True))
        else:
            self.optimizer.minimize(loss, self.trainable_variables, tape=tape)
        return {"loss": loss}


def make_model(is_own=False):
    keras.utils.set_random_seed(3)
    if is_own:
        model = OwnStep()
        model(DATA[:1])
        return model
    return keras.Sequential(
        [
            keras.layers.Input((6,)),
            keras.layers.Dense(4, activation="tanh"),
            keras.layers.Dense(1),
        ]
    )


def fit(model, optimizer, rows, batch, **options):
    model.compile(optimizer=optimizer, loss="mse", **options)
    model.fit(DATA[rows], LABELS[rows], batch_size=batch, epochs=2, shuffle=False, verbose=0)
    return model


@functools.cache
def expected_weights(is_own=False, steps=None):
    options = {} if steps is None else {"gradient_accumulation_steps": steps}
    optimizer = keras.optimizers.SGD(0.1, momentum=0.5, **options)
    return fit(make_model(is_own), optimizer, np.arange(128), BATCH * SIZE).get_weights()


def assert_like_one_process(model, **options):
    for mine, expected in zip(model.get_weights(), expected_weights(**options), strict=True):
        assert np.allclose(mine, expected, atol=1e-4)


@each_op
@pytest.mark.parametrize("run_eagerly", [False, True], ids=["graph", "eager"])
@pytest.mark.parametrize("is_own", [False, True], ids=["own", "keras"][::-1])
def test_fit(op, run_eagerly, is_own):
    rate = OPS[op][1]
    optimizer = hvd_keras.DistributedOptimizer(
        keras.optimizers.SGD(rate, momentum=0.5), op=OPS[op][0]
    )
    model = fit(make_model(is_own), optimizer, my_rows(), BATCH, run_eagerly=run_eagerly)
    assert_like_one_process(model, is_own=is_own)


@each_op
def test_fit_after_a_look_at_the_gradients(op):
    rate = OPS[op][1]
    model = make_model()
    optimizer = hvd_keras.DistributedOptimizer(
        keras.optimizers.SGD(rate, momentum=0.5), op=OPS[op][0]
    )
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((model(DATA[my_rows()]) - LABELS[my_rows()]) ** 2)
    optimizer.compute_gradients(loss, model.trainable_variables, tape=tape)
    fit(model, optimizer, my_rows(), BATCH)
    assert_like_one_process(model)


def test_two_models_with_one_class_of_optimizer():
    """One is only looked at while the other trains."""
    rows = my_rows()
    first, second = make_model(), make_model()
    optimizers = [
        hvd_keras.DistributedOptimizer(keras.optimizers.SGD(0.1, momentum=0.5)) for _ in range(2)
    ]
    first.compile(optimizer=optimizers[0], loss="mse")
    second.compile(optimizer=optimizers[1], loss="mse")
    for _ in range(2):
        for start in range(0, len(rows), BATCH):
            batch = rows[start : start + BATCH]
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((second(DATA[batch]) - LABELS[batch]) ** 2)
            optimizers[1].compute_gradients(loss, second.trainable_variables, tape=tape)
            first.train_on_batch(DATA[batch], LABELS[batch])
    assert_like_one_process(first)
    fit(second, optimizers[1], rows, BATCH)
    assert_like_one_process(second)


def test_saved_and_loaded(tmp_path):
    path = os.path.join(hvd.broadcast_object(str(tmp_path), 0), "model.keras")
    optimizer = hvd_keras.DistributedOptimizer(keras.optimizers.SGD(0.1, momentum=0.5))
    model = fit(make_model(), optimizer, my_rows(), BATCH)
    if RANK == 0:
        model.save(path)
    hvd.barrier()
    loaded = hvd_keras.load_model(path)
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((loaded(DATA[my_rows()]) - LABELS[my_rows()]) ** 2)
    loaded.optimizer.compute_gradients(loss, loaded.trainable_variables, tape=tape)
    options = {"batch_size": BATCH, "epochs": 1, "shuffle": False, "verbose": 0}
    loaded.fit(DATA[my_rows()], LABELS[my_rows()], **options)
    alone = fit(make_model(), keras.optimizers.SGD(0.1, momentum=0.5), np.arange(128), BATCH * SIZE)
    alone.fit(DATA, LABELS, **{**options, "batch_size": BATCH * SIZE})
    for mine, expected in zip(loaded.get_weights(), alone.get_weights(), strict=True):
        assert np.allclose(mine, expected, atol=1e-4)


@keras_3
@each_op
def test_gradient_accumulation_of_keras(op):
    rate = OPS[op][1]
    optimizer = keras.optimizers.SGD(rate, momentum=0.5, gradient_accumulation_steps=2)
    optimizer = hvd_keras.DistributedOptimizer(optimizer, op=OPS[op][0])
    assert_like_one_process(fit(make_model(), optimizer, my_rows(), BATCH), steps=2)


@keras_3
@each_op
@pytest.mark.parametrize("is_outside", [False, True], ids=["inside", "outside"])
def test_loss_scaling(op, is_outside):
    rate = OPS[op][1]
    scale = keras.optimizers.LossScaleOptimizer
    optimizer = keras.optimizers.SGD(rate, momentum=0.5)
    if is_outside:
        optimizer = scale(
            hvd_keras.DistributedOptimizer(optimizer, op=OPS[op][0]), initial_scale=8.0
        )
    else:
        optimizer = hvd_keras.DistributedOptimizer(
            scale(optimizer, initial_scale=8.0), op=OPS[op][0]
        )
    assert_like_one_process(fit(make_model(), optimizer, my_rows(), BATCH))
