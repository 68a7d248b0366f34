# SPDX-License-Identifier: Apache-2.0
"""model.fit and what is around it, on the backend that KERAS_BACKEND names."""

import os

import horovod.keras as hvd
import keras
import numpy as np
import pytest
from small_fit import BATCH, DATA, LABELS, SmallFit

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
TASK = SmallFit(keras, RANK, SIZE)
my_rows, make_model, fit, LOSS = TASK.my_rows, TASK.make_model, TASK.fit, TASK.loss
IS_JAX = keras.backend.backend() == "jax"


def assert_equal_on_all_ranks(variables):
    for variable in variables:
        value = np.asarray(variable.numpy(), dtype=np.float64).reshape(1, -1)
        gathered = np.asarray(hvd.allgather(value))
        assert (gathered == gathered[0]).all(), variable.path


@pytest.mark.parametrize("is_compiled", [False, True] if IS_JAX else [False])
def test_fit_is_what_one_process_does(is_compiled):
    model = TASK.fit_like_alone(
        hvd.DistributedOptimizer,
        callbacks=[hvd.callbacks.MetricAverageCallback()],
        jit_compile=is_compiled,
    )
    assert_equal_on_all_ranks(model.weights)


NAMES = "SGD RMSprop Adam AdamW Adadelta Adagrad Adamax Adafactor Nadam Ftrl Lion Lamb Muon"


@pytest.mark.parametrize("name", NAMES.split(" "))
def test_every_optimizer(name):
    cls = getattr(keras.optimizers, name)
    model, history = fit(
        hvd.DistributedOptimizer(cls(0.01)),
        model=make_model(RANK, with_noise=True),
        callbacks=[
            hvd.callbacks.BroadcastGlobalVariablesCallback(0),
            hvd.callbacks.MetricAverageCallback(),
        ],
        epochs=1,
    )
    assert_equal_on_all_ranks(model.trainable_variables)
    assert_equal_on_all_ranks(model.optimizer.variables)
    assert isinstance(model.optimizer, cls) and type(model.optimizer).__name__ == name
    assert type(model.optimizer).__module__ == "horovod._keras"
    assert np.isfinite(history["loss"][0])


def test_large_gradients():
    """Arrays that are more than a callback's small change."""
    model, _ = fit(
        hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)),
        model=make_model(RANK, width=200_000),
        callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)],
        rows=my_rows(64),
        epochs=1,
    )
    assert_equal_on_all_ranks(model.weights[-1:])


@pytest.mark.parametrize("name", ["fp16", "bf16"])
@pytest.mark.parametrize("groups", [None, 1, 3, "lists"])
def test_groups_and_compression(name, groups):
    model = make_model(7)
    if groups == "lists":
        groups = [list(model.trainable_variables[:2])]
    optimizer = hvd.DistributedOptimizer(
        keras.optimizers.SGD(0.1), groups=groups, compression=getattr(hvd.Compression, name)
    )
    fit(optimizer, model=model, epochs=1)
    assert_equal_on_all_ranks(model.weights)


def test_sum_and_predivide():
    expected, _ = fit(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), epochs=1)
    for options, rate in (
        ({"op": hvd.Sum}, 0.1 / SIZE),
        ({"gradient_predivide_factor": 4.0}, 0.1),
    ):
        model, _ = fit(hvd.DistributedOptimizer(keras.optimizers.SGD(rate), **options), epochs=1)
        for weights, others in zip(model.get_weights(), expected.get_weights(), strict=True):
            assert np.allclose(weights, others, atol=1e-5)


def test_local_layers():
    model = make_model(RANK)
    optimizer = hvd.PartialDistributedOptimizer(
        keras.optimizers.SGD(0.1), local_layers=model.layers[-1]
    )
    local = model.layers[-1].trainable_variables
    callback = hvd.callbacks.BroadcastGlobalVariablesCallback(0, local_variables=local)
    fit(optimizer, model=model, epochs=1, callbacks=[callback])
    gathered = np.asarray(hvd.allgather(local[0].numpy().reshape(1, -1)))
    assert SIZE == 1 or not np.allclose(gathered[0], gathered[1])
    with pytest.raises(ValueError, match="gradient_accumulation_steps"):
        hvd.PartialDistributedOptimizer(keras.optimizers.SGD(0.1), backward_passes_per_step=2)


@pytest.mark.parametrize("is_outside", [False, True])
def test_local_overflow_does_not_part_the_ranks(is_outside):
    """One rank's gradients are infinite once: all ranks skip that step together."""
    scale = keras.optimizers.LossScaleOptimizer
    model = TASK.fit_with_overflow(hvd.DistributedOptimizer, scale, is_outside)
    assert_equal_on_all_ranks(model.weights)


def rate_of(model):
    if IS_JAX:
        model.jax_state_sync()
    return float(model.optimizer.learning_rate.numpy())


def test_warmup_and_schedule():
    TASK.check_warmup_and_schedule(hvd.DistributedOptimizer, hvd.callbacks, rate_of)


@pytest.fixture
def folder(tmp_path):
    name = np.frombuffer(str(tmp_path).encode().ljust(512), dtype=np.uint8)
    return np.asarray(hvd.broadcast(name, 0)).tobytes().decode().strip()


def test_saved_model_comes_back_wrapped(folder):
    path = os.path.join(folder, "model.keras")
    model, _ = fit(hvd.DistributedOptimizer(keras.optimizers.Adam(0.01)))
    if RANK == 0:
        model.save(path)
    hvd.allreduce([1.0])
    plain = keras.models.load_model(path)
    assert not hasattr(type(plain.optimizer), "_hvd_settings")
    if RANK == 0:
        with open(path, "rb") as file:
            content = file.read().lower()
        assert b"horovod" not in content and b"hvd" not in content
    loaded = hvd.load_model(path)
    assert type(loaded.optimizer).__name__ == "Adam" and hasattr(loaded.optimizer, "_hvd")
    assert int(loaded.optimizer.iterations.numpy()) == 2 * 256 // SIZE // BATCH
    assert np.allclose(loaded.predict(DATA, verbose=0), model.predict(DATA, verbose=0), atol=1e-5)
    loaded.fit(DATA[my_rows()], LABELS[my_rows()], batch_size=BATCH, verbose=0, shuffle=False)
    assert_equal_on_all_ranks(loaded.weights)
    hvd.allreduce([1.0])


def test_elastic_state_and_callbacks():
    optimizer = hvd.DistributedOptimizer(keras.optimizers.Adam(0.01))
    state = TASK.check_elastic_state(
        hvd.elastic, optimizer, np.arange(64), assert_equal_on_all_ranks
    )

    @hvd.elastic.run
    def train(state):
        return state.epoch

    assert train(state) == 0


def test_values():
    mean = (SIZE + 1) / 2
    assert np.allclose(np.asarray(hvd.allreduce(np.float32([1.0 + RANK]))), mean)
    assert np.allclose(np.asarray(hvd.allgather([RANK])), np.arange(SIZE))
    assert np.allclose(np.asarray(hvd.broadcast([RANK], SIZE - 1)), SIZE - 1)
    assert hvd.reducescatter(np.ones(SIZE, np.float32)).shape == (1,)
    with pytest.raises(ValueError, match="only supports Average and Sum"):
        hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), op=hvd.Adasum)
