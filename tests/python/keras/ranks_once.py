# SPDX-License-Identifier: Apache-2.0
"""Each update reduces gradients exactly once; learning rates and metrics are those of all ranks.

On the backend that KERAS_BACKEND names; weights are compared with one process.
"""

import functools

import horovod.keras as hvd
import keras
import numpy as np
import pytest

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
BATCH = 16
DATA = np.random.RandomState(0).rand(128, 20).astype("float32")
LABELS = (DATA.sum(1) > 10).astype("int32")
LOSS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def my_rows():
    """Rows such that all ranks' batches together are the batches of one process."""
    return np.arange(128).reshape(-1, SIZE, BATCH)[:, RANK].reshape(-1)


def fit(optimizer, rows=None, batch=BATCH, callbacks=(), **options):
    keras.utils.set_random_seed(7)
    layers = [keras.layers.Input((20,)), keras.layers.Dense(8, activation="relu")]
    model = keras.Sequential([*layers, keras.layers.Dense(2)])
    rows = my_rows() if rows is None else rows
    model.compile(optimizer=optimizer, loss=LOSS, **options)
    model.fit(
        DATA[rows],
        LABELS[rows],
        batch_size=batch,
        shuffle=False,
        verbose=0,
        callbacks=list(callbacks),
    )
    return model


SCALES = {"sum": (hvd.Sum, 1.0 / SIZE), "average": (hvd.Average, 1.0)}


def make_optimizer(rate, steps=None):
    return keras.optimizers.SGD(rate, momentum=0.5, gradient_accumulation_steps=steps)


@functools.cache
def expected_weights(steps=None):
    return fit(make_optimizer(0.1, steps), np.arange(128), BATCH * SIZE).get_weights()


def assert_like_one_process(model, steps=None):
    for weights, expected in zip(model.get_weights(), expected_weights(steps), strict=True):
        assert np.allclose(weights, expected, atol=1e-4)


@pytest.mark.parametrize("op", list(SCALES))
@pytest.mark.parametrize("run_eagerly", [False, True])
@pytest.mark.parametrize("steps", [None, 2])
def test_reduced_once(op, run_eagerly, steps):
    """Also where Keras itself gathers gradients over several steps."""
    reduction, scale = SCALES[op]
    optimizer = hvd.DistributedOptimizer(make_optimizer(0.1 * scale, steps), op=reduction)
    assert_like_one_process(fit(optimizer, run_eagerly=run_eagerly), steps)


@pytest.mark.parametrize("op", list(SCALES))
@pytest.mark.parametrize("is_outside", [False, True])
def test_reduced_once_with_loss_scaling(op, is_outside):
    def scaled(optimizer):
        return keras.optimizers.LossScaleOptimizer(optimizer, initial_scale=8.0)

    reduction, scale = SCALES[op]
    if is_outside:
        optimizer = scaled(hvd.DistributedOptimizer(make_optimizer(0.1 * scale), op=reduction))
    else:
        optimizer = hvd.DistributedOptimizer(scaled(make_optimizer(0.1 * scale)), op=reduction)
    assert_like_one_process(fit(optimizer))


@pytest.mark.parametrize("op", list(SCALES))
def test_applied_by_hand(op):
    reduction, scale = SCALES[op]
    variable = keras.Variable(np.float32([10.0, 20.0]))
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.5), op=reduction)
    optimizer.build([variable])
    for _ in range(3):
        grad = keras.ops.convert_to_tensor(np.float32([1.0 + RANK, 0.0]))
        optimizer.apply([grad], [variable])
    slope = (SIZE + 1) / 2 / scale
    value = keras.ops.convert_to_numpy(variable.value)
    assert np.allclose(value, [10.0 - 1.5 * slope, 20.0]), value


def test_learning_rate_is_broadcast():
    model = fit(
        hvd.DistributedOptimizer(keras.optimizers.SGD(0.01 * (1 + RANK))),
        callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(1)],
    )
    assert np.allclose(float(model.optimizer.learning_rate.numpy()), 0.02)


def test_metrics_that_are_not_scalars():
    logs = {"loss": 1.0 + RANK, "per_class": np.float32([RANK, 10.0 * RANK]), "text": "x"}
    logs["tensor"] = keras.ops.convert_to_tensor(np.float32([[RANK]]))
    hvd.callbacks.MetricAverageCallback().on_epoch_end(0, logs)
    mean = (SIZE - 1) / 2
    assert logs["loss"] == 1.0 + mean and logs["text"] == "x"
    assert np.allclose(logs["per_class"], [mean, 10 * mean])
    assert np.allclose(logs["tensor"], [[mean]]) and logs["tensor"].shape == (1, 1)
