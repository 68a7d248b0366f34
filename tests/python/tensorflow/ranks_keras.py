# SPDX-License-Identifier: Apache-2.0
"""model.fit and everything around it, with whichever Keras tf.keras is."""

import os

import horovod.tensorflow as hvd
import horovod.tensorflow.keras as hvd_keras
import numpy as np
import pytest
import tensorflow as tf
from horovod.tensorflow.util import tf_variable
from same import assert_equal_on_all_ranks, rate_of
from small_fit import BATCH, DATA, LABELS
from tf_task import IS_KERAS_3, RANK, SIZE, TASK, keras

my_rows, make_model, fit, LOSS = TASK.my_rows, TASK.make_model, TASK.fit, TASK.loss


def test_fit_is_what_one_process_does():
    model = TASK.fit_like_alone(
        hvd_keras.DistributedOptimizer, callbacks=[hvd_keras.callbacks.MetricAverageCallback()]
    )
    assert_equal_on_all_ranks(model.variables)


NAMES = "SGD RMSprop Adam AdamW Adadelta Adagrad Adamax Adafactor Nadam Ftrl Lion Lamb Muon"


@pytest.mark.parametrize("name", NAMES.split())
def test_every_optimizer(name):
    cls = getattr(keras.optimizers, name, None)
    if cls is None:
        pytest.skip(f"this Keras has no {name}")
    model, history = fit(
        hvd_keras.DistributedOptimizer(cls(0.01)),
        seed=RANK,
        callbacks=[
            hvd_keras.callbacks.BroadcastGlobalVariablesCallback(0),
            hvd_keras.callbacks.MetricAverageCallback(),
        ],
        epochs=1,
        with_noise=True,
    )
    assert_equal_on_all_ranks(model.trainable_variables)
    optimizer = model.optimizer
    assert isinstance(optimizer, cls) and type(optimizer).__name__ == name
    losses = hvd.allgather_object(float(history["loss"][0]))
    assert losses == [losses[0]] * SIZE


@pytest.mark.skipif(not hasattr(keras.optimizers, "legacy") or IS_KERAS_3, reason="Keras 3")
def test_legacy_optimizer():
    model, _ = fit(hvd_keras.DistributedOptimizer(keras.optimizers.legacy.SGD(0.1, momentum=0.9)))
    assert_equal_on_all_ranks(model.variables)


def recorded_loss(model, x, y):
    with tf.GradientTape() as tape:
        loss = LOSS(y, model(x, training=True))
    return loss, tape


def test_custom_loop_with_optimizer():
    model = make_model(3)
    optimizer = hvd_keras.DistributedOptimizer(keras.optimizers.Adam(0.01))
    rows = my_rows()

    @tf.function
    def step(x, y):
        loss, tape = recorded_loss(model, x, y)
        optimizer.minimize(loss, model.trainable_variables, tape=tape)
        return loss

    for start in range(0, len(rows), BATCH):
        batch = rows[start : start + BATCH]
        step(tf.constant(DATA[batch]), tf.constant(LABELS[batch]))
    assert_equal_on_all_ranks(model.variables)
    changed = [
        np.abs(a - b).max()
        for a, b in zip(model.get_weights(), make_model(3).get_weights(), strict=True)
    ]
    assert max(changed) > 0.01


def test_custom_loop_with_tape():
    model = make_model(RANK)
    optimizer = keras.optimizers.Adam(0.01)
    rows = my_rows()

    @tf.function
    def step(x, y):
        loss, tape = recorded_loss(model, x, y)
        tape = hvd.DistributedGradientTape(tape)
        grads = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(grads, model.trainable_variables, strict=True))

    for number, start in enumerate(range(0, len(rows), BATCH)):
        batch = rows[start : start + BATCH]
        step(tf.constant(DATA[batch]), tf.constant(LABELS[batch]))
        if number == 0:
            hvd.broadcast_variables(model.variables, 0)
            variables = optimizer.variables
            hvd.broadcast_variables(variables() if callable(variables) else variables, 0)
    assert_equal_on_all_ranks(model.variables)


@pytest.mark.parametrize("groups", [1, 3, "lists"])
def test_groups_and_compression(groups):
    model = make_model(7)
    if groups == "lists":
        groups = [list(model.trainable_variables[:2])]
    optimizer = hvd_keras.DistributedOptimizer(
        keras.optimizers.SGD(0.1), groups=groups, compression=hvd.Compression.bf16
    )
    fit(optimizer, model=model, epochs=1)
    assert_equal_on_all_ranks(model.variables)


def test_local_aggregation():
    optimizer = hvd_keras.DistributedOptimizer(
        keras.optimizers.SGD(0.1), backward_passes_per_step=2, average_aggregated_gradients=True
    )
    model, _ = fit(optimizer, epochs=1)
    # The batch of each rank's two passes together, in the order in which they came.
    rows = np.arange(256).reshape(-1, 2 * SIZE * BATCH).reshape(-1)
    alone, _ = fit(keras.optimizers.SGD(0.1), rows=rows, batch=2 * SIZE * BATCH, epochs=1)
    assert_equal_on_all_ranks(model.variables)
    for weights, weights_alone in zip(model.get_weights(), alone.get_weights(), strict=True):
        assert np.allclose(weights, weights_alone, atol=1e-4)
    assert int(tf_variable(model.optimizer.iterations)) == 256 // SIZE // BATCH


def test_several_steps_in_one_call():
    model, _ = fit(
        hvd_keras.DistributedOptimizer(keras.optimizers.Adam(0.01)), steps_per_execution=4
    )
    assert_equal_on_all_ranks(model.variables)


@pytest.mark.parametrize("is_outside", [False, True])
def test_local_overflow_does_not_part_the_ranks(is_outside):
    """One rank's gradients are infinite once: all ranks skip that step together."""
    if IS_KERAS_3:
        scale = keras.optimizers.LossScaleOptimizer
    else:
        scale = keras.mixed_precision.LossScaleOptimizer
    model = TASK.fit_with_overflow(hvd_keras.DistributedOptimizer, scale, is_outside)
    assert_equal_on_all_ranks(model.variables)


def test_mixed_precision():
    keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        model, _ = fit(hvd_keras.DistributedOptimizer(keras.optimizers.SGD(0.01)), epochs=1)
    finally:
        keras.mixed_precision.set_global_policy("float32")
    assert_equal_on_all_ranks(model.variables)


def test_warmup_and_schedule():
    TASK.check_warmup_and_schedule(hvd_keras.DistributedOptimizer, hvd_keras.callbacks, rate_of)
    with pytest.raises(ValueError, match="initial_lr"):
        hvd_keras.callbacks.LearningRateScheduleCallback(None, 1.0)


def test_local_variables_stay():
    model = make_model(RANK)
    local = model.trainable_variables[0]
    before = tf.convert_to_tensor(tf_variable(local))
    fit(
        hvd_keras.DistributedOptimizer(keras.optimizers.SGD(0.0)),
        model=model,
        callbacks=[
            hvd_keras.callbacks.BroadcastGlobalVariablesCallback(0, local_variables=[local])
        ],
        epochs=1,
    )
    assert np.allclose(before, tf.convert_to_tensor(tf_variable(local)))
    assert_equal_on_all_ranks(model.trainable_variables[1:])


@pytest.fixture
def folder(tmp_path):
    return hvd.broadcast_object(str(tmp_path), 0)


@pytest.mark.parametrize("ending", ["keras", "h5"])
def test_saved_model_comes_back_wrapped(folder, ending):
    path = os.path.join(folder, f"model.{ending}")
    model, _ = fit(hvd_keras.DistributedOptimizer(keras.optimizers.Adam(0.01)))
    if RANK == 0:
        model.save(path)
    hvd.barrier()
    plain = keras.models.load_model(path)
    assert not hasattr(type(plain.optimizer), "_hvd_settings")
    loaded = hvd_keras.load_model(path)
    assert type(loaded.optimizer).__name__ == "Adam" and hasattr(loaded.optimizer, "_hvd")
    assert int(tf_variable(loaded.optimizer.iterations)) == 2 * 256 // SIZE // BATCH
    assert np.allclose(loaded.predict(DATA, verbose=0), model.predict(DATA, verbose=0), atol=1e-5)
    loaded.fit(DATA[my_rows()], LABELS[my_rows()], batch_size=BATCH, verbose=0, shuffle=False)
    assert_equal_on_all_ranks(loaded.variables)
    hvd.barrier()


def test_best_model_checkpoint(folder):
    checkpoint = hvd_keras.callbacks.BestModelCheckpoint(monitor="loss")
    checkpoint.filepath = os.path.join(folder, f"best{RANK}.keras")
    fit(hvd_keras.DistributedOptimizer(keras.optimizers.SGD(0.1)), callbacks=[checkpoint])
    assert os.path.exists(checkpoint.filepath)


def test_sync_batch_normalization_in_a_model():
    keras.utils.set_random_seed(5)
    model = keras.Sequential(
        [keras.layers.Input((20,)), hvd.SyncBatchNormalization(), keras.layers.Dense(2)]
    )
    fit(hvd_keras.DistributedOptimizer(keras.optimizers.SGD(0.1)), model=model)
    assert_equal_on_all_ranks(model.variables)


def test_elastic_state_and_callbacks():
    optimizer = hvd_keras.DistributedOptimizer(keras.optimizers.Adam(0.01))
    TASK.check_elastic_state(hvd_keras.elastic, optimizer, my_rows(), assert_equal_on_all_ranks)


def test_values():
    assert np.allclose(hvd_keras.allreduce([1.0 + RANK]), (SIZE + 1) / 2)
    assert np.allclose(hvd_keras.allgather([RANK]), np.arange(SIZE))
    assert np.allclose(hvd_keras.broadcast([RANK], 1), 1)
    assert hvd_keras.reducescatter([1.0] * SIZE).shape == (1,)


def test_arguments():
    with pytest.raises(ValueError, match="only supports Average and Sum"):
        hvd_keras.DistributedOptimizer(keras.optimizers.SGD(0.1), op=hvd.Max)
    with pytest.raises(ValueError, match="Adasum is not supported yet with Keras"):
        hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), op=hvd.Adasum)
    with pytest.raises(AttributeError, match="from_config"):
        hvd_keras.DistributedOptimizer(3)
