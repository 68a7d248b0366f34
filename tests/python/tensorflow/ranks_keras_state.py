# SPDX-License-Identifier: Apache-2.0
"""What callbacks and local aggregation keep between batches, epochs and fits."""

import horovod.tensorflow.keras as hvd_keras
import numpy as np
import pytest
import tensorflow as tf
from horovod.tensorflow.util import tf_variable
from same import assert_equal_on_all_ranks, rate_of
from small_fit import BATCH, DATA, LABELS
from tf_task import IS_KERAS_3, RANK, SIZE, TASK, keras

my_rows, make_model, fit, LOSS = TASK.my_rows, TASK.make_model, TASK.fit, TASK.loss


def test_constant_multiplier_with_every_batch():
    seen = []
    steps = 256 // SIZE // BATCH
    schedule = hvd_keras.callbacks.LearningRateScheduleCallback(0.4, 0.5, staircase=False)
    fit(
        hvd_keras.DistributedOptimizer(keras.optimizers.SGD(0.1)),
        callbacks=[schedule, TASK.watch_rates(rate_of, seen)],
        epochs=2,
    )
    assert np.allclose(seen, [0.4 * 0.5 ** (batch / steps) for batch in range(2 * steps)])


def test_metrics_that_are_not_scalars():
    logs = {
        "loss": 1.0 + RANK,
        "per_class": np.float32([RANK, 10.0 * RANK]),
        "matrix": tf.fill([2, 2], float(RANK)),
        "count": RANK,
        "text": "as it was",
        "nothing": None,
    }
    hvd_keras.callbacks.MetricAverageCallback().on_epoch_end(0, logs)
    mean = (SIZE - 1) / 2
    assert logs["loss"] == 1.0 + mean and logs["count"] == mean
    assert np.allclose(logs["per_class"], [mean, 10 * mean]) and logs["per_class"].shape == (2,)
    assert np.allclose(logs["matrix"], np.full([2, 2], mean))
    assert logs["text"] == "as it was" and logs["nothing"] is None


class PerOutput(keras.metrics.Metric):
    """A metric with one value for each output."""

    def __init__(self):
        super().__init__(name="per_output")
        self.total = self.add_weight(name="total", shape=(2,), initializer="zeros")

    def update_state(self, y_true, y_pred, sample_weight=None):
        self.total.assign_add(tf.fill([2], 1.0 + RANK))

    def result(self):
        return tf.convert_to_tensor(tf_variable(self.total)) * [1.0, 2.0]


def test_metric_of_several_values_in_fit():
    model = make_model(7)
    model.compile(
        optimizer=hvd_keras.DistributedOptimizer(keras.optimizers.SGD(0.1)),
        loss=LOSS,
        metrics=[PerOutput()],
    )
    rows = my_rows()
    callbacks = [hvd_keras.callbacks.MetricAverageCallback()]
    options = {"batch_size": BATCH, "verbose": 0, "callbacks": callbacks}
    history = model.fit(DATA[rows], LABELS[rows], **options).history
    mean = 256 / SIZE / BATCH * (SIZE + 1) / 2
    assert np.allclose(history["per_output"][0], [mean, 2 * mean])


def optimizers_with_other_rates():
    makers = [keras.optimizers.SGD, keras.optimizers.Adam]
    if not IS_KERAS_3:
        makers += [keras.optimizers.legacy.SGD, keras.optimizers.legacy.Adam]
    return makers


@pytest.mark.parametrize("make", optimizers_with_other_rates())
@pytest.mark.parametrize("root", [0, 1])
def test_learning_rate_is_broadcast(make, root):
    model, _ = fit(
        hvd_keras.DistributedOptimizer(make(0.01 * (1 + RANK))),
        seed=RANK,
        callbacks=[hvd_keras.callbacks.BroadcastGlobalVariablesCallback(root)],
        epochs=1,
    )
    assert np.allclose(rate_of(model), 0.01 * (1 + root))
    assert_equal_on_all_ranks(model.variables)


def test_legacy_momentum_is_broadcast():
    if IS_KERAS_3:
        pytest.skip("momentum is a number in Keras 3")
    optimizer = keras.optimizers.legacy.SGD(0.01, momentum=0.1 * (1 + RANK))
    model, _ = fit(
        hvd_keras.DistributedOptimizer(optimizer),
        callbacks=[hvd_keras.callbacks.BroadcastGlobalVariablesCallback(0)],
        epochs=1,
    )
    assert np.allclose(float(model.optimizer.momentum), 0.1)


def square_model():
    """Layers whose weights have equal shapes."""
    keras.utils.set_random_seed(11)
    return keras.Sequential(
        [
            keras.layers.Input((20,)),
            *[keras.layers.Dense(20, activation="tanh") for _ in range(3)],
            keras.layers.Dense(2),
        ]
    )


# Passes in each fit, and the layers that are frozen then.
PHASES = [(3, []), (3, [0]), (4, [0, 1]), (5, [1]), (3, [])]


def expected_weights():
    """What one process gets that sees the data of all ranks and sums over two passes."""
    model, rate = square_model(), 0.1
    sums, count, at = {}, 0, 0
    for passes, frozen in PHASES:
        for index, layer in enumerate(model.layers):
            layer.trainable = index not in frozen
        for _ in range(passes):
            rows = slice(at * SIZE * BATCH, (at + 1) * SIZE * BATCH)
            at = (at + 1) % (256 // SIZE // BATCH)
            with tf.GradientTape() as tape:
                loss = LOSS(LABELS[rows], model(DATA[rows], training=True))
            variables = [tf_variable(v) for v in model.trainable_variables]
            for variable, grad in zip(variables, tape.gradient(loss, variables), strict=True):
                sums[variable.ref()] = sums.get(variable.ref(), 0.0) + grad
            count += 1
            if count == 2:
                for variable in variables:
                    variable.assign_sub(rate * sums[variable.ref()])
                sums, count = {}, 0
    return model.get_weights()


@pytest.mark.parametrize("run_eagerly", [False, True])
def test_layers_frozen_between_fits_with_local_aggregation(run_eagerly):
    model = square_model()
    optimizer = hvd_keras.DistributedOptimizer(
        keras.optimizers.SGD(0.1), backward_passes_per_step=2
    )
    if IS_KERAS_3:
        optimizer.build(model.trainable_variables)
    at = 0
    rows = my_rows()
    for passes, frozen in PHASES:
        for index, layer in enumerate(model.layers):
            layer.trainable = index not in frozen
        model.compile(optimizer=optimizer, loss=LOSS, run_eagerly=run_eagerly)
        chosen = []
        for _ in range(passes):
            chosen.append(rows[at * BATCH : (at + 1) * BATCH])
            at = (at + 1) % (256 // SIZE // BATCH)
        chosen = np.concatenate(chosen)
        model.fit(DATA[chosen], LABELS[chosen], batch_size=BATCH, shuffle=False, verbose=0)
    for layer in model.layers:
        layer.trainable = True
    assert_equal_on_all_ranks(model.variables)
    for mine, expected in zip(model.get_weights(), expected_weights(), strict=True):
        assert np.allclose(mine, expected, atol=1e-4)
