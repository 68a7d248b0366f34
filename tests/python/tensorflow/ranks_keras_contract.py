# SPDX-License-Identifier: Apache-2.0
"""What scripts rely on in Keras, with whichever Keras tf.keras is: wrapped optimizers in loops of
one's own, files, callbacks, momentum."""

import os

os.environ["HOROVOD_DYNAMIC_PROCESS_SETS"] = "1"

import horovod.keras as hvd_standalone  # noqa: E402
import horovod.tensorflow as hvd  # noqa: E402
import horovod.tensorflow.keras as hvd_keras  # noqa: E402
import numpy as np  # noqa: E402
import pytest  # noqa: E402
import tensorflow as tf  # noqa: E402
from horovod.tensorflow.util import tf_variable  # noqa: E402

keras = tf.keras
hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
IS_KERAS_3 = hasattr(keras.optimizers.SGD, "stateless_apply")
MEAN = (SIZE - 1) / 2


def make_model(seed=3, outputs=2):
    keras.utils.set_random_seed(seed)
    return keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(outputs)])


DATA = np.random.RandomState(5 + RANK).rand(32, 3).astype("float32")
TARGETS = np.random.RandomState(9 + RANK).rand(32, 2).astype("float32")


def equal_everywhere(variable):
    value = tf.reshape(tf.convert_to_tensor(tf_variable(variable)), [1, -1])
    gathered = hvd.allgather(value).numpy()
    return bool((gathered == gathered[0]).all())


def variables_of(optimizer):
    variables = optimizer.variables
    return variables() if callable(variables) else variables


def test_configuration_goes_round():
    plain = keras.optimizers.Adam(0.02, beta_1=0.8)
    wrapped = hvd_keras.DistributedOptimizer(plain)
    config = wrapped.get_config()
    assert config == plain.get_config()
    assert wrapped.from_config(config).get_config() == config
    assert wrapped.__class__.from_config(config).get_config() == config
    assert type(wrapped).__name__ == "Adam" and type(wrapped).__module__ == "horovod._keras"
    assert isinstance(wrapped, keras.optimizers.Adam)
    assert wrapped.process_set is hvd.global_process_set and wrapped._HAS_AGGREGATE_GRAD


@pytest.mark.parametrize("is_averaged", [False, True])
@pytest.mark.parametrize("has_graph", [False, True])
def test_aggregation_pass_by_pass(is_averaged, has_graph):
    """Gradients are summed here, travel every fourth pass, and apply then only."""
    passes = 4
    optimizer = hvd_keras.DistributedOptimizer(
        keras.optimizers.SGD(1.0),
        backward_passes_per_step=passes,
        average_aggregated_gradients=is_averaged,
    )
    variable = tf.Variable([0.0])
    if IS_KERAS_3:
        variable = keras.Variable([0.0])
    optimizer.build([variable])

    def step(grad):
        reduced = optimizer._allreduce([grad], [variable])
        optimizer.apply_gradients(list(zip(reduced, [variable], strict=True)))

    run = tf.function(step) if has_graph else step
    for number in range(1, 11):
        run(tf.constant([float(RANK)]))
        rounds = number // passes
        expected = -MEAN * rounds * (1 if is_averaged else passes)
        assert np.allclose(tf_variable(variable), [expected])
        assert int(tf_variable(optimizer.iterations)) == number


@pytest.mark.parametrize("is_dense", [False, True])
def test_embedding(is_dense):
    keras.utils.set_random_seed(1)
    model = keras.Sequential(
        [keras.layers.Input((2,)), keras.layers.Embedding(10, 4), keras.layers.Flatten()]
    )
    optimizer = hvd_keras.DistributedOptimizer(
        keras.optimizers.RMSprop(0.01), sparse_as_dense=is_dense
    )
    model.compile(optimizer, "mse")
    rows = np.array([[RANK, 2], [RANK + 3, 9]])
    for _ in range(3):
        model.train_on_batch(rows, np.ones((2, 8)))
    assert equal_everywhere(model.trainable_variables[0])


@pytest.mark.parametrize("is_local_scaled", [False, True])
def test_partial_optimizer_and_process_sets(is_local_scaled):
    evens = hvd.add_process_set(list(range(0, SIZE, 2))) if SIZE > 1 else hvd.global_process_set
    layer = keras.layers.Dense(1, use_bias=False)
    layer.build((None, 1))
    (local,) = layer.trainable_weights
    shared = keras.layers.Dense(1, use_bias=False)
    shared.build((None, 1))
    (common,) = shared.trainable_weights
    for weight in (local, common):
        weight.assign([[0.0]])
    optimizer = hvd_standalone.PartialDistributedOptimizer(
        keras.optimizers.SGD(1.0),
        local_layers=[layer],
        process_set=evens,
        scale_local_gradients=is_local_scaled,
    )
    optimizer.build([common, local])
    grads = [tf.constant([[RANK + 1.0]])] * 2
    reduced = optimizer._allreduce(grads, [common, local])
    optimizer.apply_gradients(list(zip(reduced, [common, local], strict=True)))
    members = range(0, SIZE, 2)
    mean = np.mean([r + 1.0 for r in members]) if RANK in members else RANK + 1.0
    assert np.allclose(tf_variable(common), -mean)
    divisor = len(members) if is_local_scaled else 1
    assert np.allclose(tf_variable(local), -(RANK + 1.0) / divisor)
    if SIZE > 1:
        assert hvd.remove_process_set(evens)
    with pytest.raises(ValueError, match="All local layers must be"):
        hvd_standalone.PartialDistributedOptimizer(keras.optimizers.SGD(1.0), local_layers=[3])


@pytest.fixture
def folder(tmp_path):
    return hvd.broadcast_object(str(tmp_path), 0)


class OwnOptimizer(keras.optimizers.RMSprop):
    pass


@pytest.mark.parametrize("ending", ["keras", "h5"])
@pytest.mark.parametrize("way", ["custom_optimizers", "custom_objects"])
def test_own_optimizer_comes_back(folder, ending, way):
    path = os.path.join(folder, f"own.{ending}")
    model = make_model()
    model.compile(hvd_keras.DistributedOptimizer(OwnOptimizer(0.02)), "mse")
    model.train_on_batch(DATA, TARGETS)
    if RANK == 0:
        model.save(path)
    hvd.barrier()
    options = {
        "custom_optimizers": {"custom_optimizers": [OwnOptimizer]},
        "custom_objects": {"custom_objects": {"OwnOptimizer": OwnOptimizer}},
    }[way]
    if ending == "h5":
        options["custom_objects"] = {
            **options.get("custom_objects", {}),
            "mse": keras.losses.MeanSquaredError(),
        }
    loaded = hvd_keras.load_model(path, **options)
    assert type(loaded.optimizer).__module__ == "horovod._keras"
    assert type(loaded.optimizer).__name__ == "OwnOptimizer"
    assert loaded.optimizer.get_config() == model.optimizer.get_config()
    if ending == "keras":
        pairs = zip(variables_of(loaded.optimizer), variables_of(model.optimizer), strict=True)
        assert all(np.allclose(tf_variable(a), tf_variable(b)) for a, b in pairs)
    hvd.barrier()


def test_only_the_root_has_loaded(folder):
    """Rank 0 goes on from a file, the others start: after a batch all are as rank 0 is."""
    path = os.path.join(folder, "model.keras")
    model = make_model()
    model.compile(hvd_keras.DistributedOptimizer(keras.optimizers.SGD(0.1, momentum=0.9)), "mse")
    model.fit(DATA, TARGETS, verbose=0)
    if RANK == 0:
        model.save(path)
    hvd.barrier()
    if RANK == 0:
        model = hvd_keras.load_model(path)
    else:
        model = make_model(seed=100 + RANK)
        optimizer = keras.optimizers.SGD(0.1, momentum=0.9)
        model.compile(hvd_keras.DistributedOptimizer(optimizer), "mse")
    start = hvd_keras.callbacks.BroadcastGlobalVariablesCallback(0)
    model.fit(DATA, TARGETS, batch_size=8, epochs=2, verbose=0, callbacks=[start])
    assert start.broadcast_done
    assert all(equal_everywhere(v) for v in model.weights)
    assert all(equal_everywhere(v) for v in variables_of(model.optimizer))
    hvd.barrier()


@pytest.mark.parametrize("name", ["SGD", "legacy.SGD"])
def test_momentum_is_corrected_in_compiled_steps(name):
    """When the rate changes, the momentum of that one batch is scaled with it, and then back."""
    if name == "legacy.SGD" and IS_KERAS_3:
        pytest.skip("Keras 3 has no legacy optimizers")
    cls = keras.optimizers.SGD if name == "SGD" else keras.optimizers.legacy.SGD
    model = make_model(outputs=1)
    optimizer = hvd_keras.DistributedOptimizer(cls(0.1, momentum=0.9))
    model.compile(optimizer, "mse")
    data, targets = np.ones((4, 3), "float32"), np.zeros((4, 1), "float32")
    weights, bias = model.get_weights()
    velocity, rates = np.zeros(4), [0.1, 0.1, 0.2, 0.2, 0.05]
    state = np.concatenate([weights[:, 0], bias])
    previous = rates[0]
    for rate in rates:
        momentum = 0.9 * rate / previous
        grad = 2 * state.sum() * np.ones(4)
        velocity = momentum * velocity - rate * grad
        state, previous = state + velocity, rate
    schedule = hvd_keras.callbacks.LearningRateScheduleCallback(
        initial_lr=1.0, multiplier=lambda epoch: rates[int(epoch)]
    )
    model.fit(data, targets, batch_size=4, epochs=5, verbose=0, callbacks=[schedule])
    found = np.concatenate([model.get_weights()[0][:, 0], model.get_weights()[1]])
    assert np.allclose(found, state, atol=1e-5)
    config = model.optimizer.get_config()
    assert np.isclose(float(config["momentum"]), 0.9)
    assert name != "SGD" or type(config["momentum"]) is float


def test_loss_scaling_with_aggregation():
    """An overflow on one rank in a pass that does not travel: all skip that step together."""
    if IS_KERAS_3:
        scale = keras.optimizers.LossScaleOptimizer
    else:
        scale = keras.mixed_precision.LossScaleOptimizer
    inner = hvd_keras.DistributedOptimizer(keras.optimizers.SGD(0.1), backward_passes_per_step=2)
    model = make_model()
    model.compile(scale(inner, initial_scale=4.0), "mse")
    data = DATA.copy()
    if RANK == SIZE - 1:
        data[0] = np.inf
    model.fit(data, TARGETS, batch_size=4, epochs=1, shuffle=False, verbose=0)
    assert all(equal_everywhere(v) for v in model.weights)
    assert all(np.isfinite(weights).all() for weights in model.get_weights())
    assert equal_everywhere(model.optimizer.iterations)
    assert all(equal_everywhere(v) for v in variables_of(model.optimizer))


def test_seeds_of_dropout_are_not_made_equal():
    keras.utils.set_random_seed(50 + RANK)
    model = keras.Sequential(
        [keras.layers.Input((3,)), keras.layers.Dropout(0.5), keras.layers.Dense(2)]
    )
    model.compile(hvd_keras.DistributedOptimizer(keras.optimizers.SGD(0.1)), "mse")
    start = hvd_keras.callbacks.BroadcastGlobalVariablesCallback(0)
    model.fit(DATA, TARGETS, verbose=0, callbacks=[start])
    assert all(equal_everywhere(v) for v in model.weights)
    if IS_KERAS_3 and SIZE > 1:
        seeds = [v for v in model.variables if "seed" in v.path]
        assert seeds and not any(equal_everywhere(v) for v in seeds)


def test_metrics_are_averaged_in_place():
    callback = hvd_keras.callbacks.MetricAverageCallback()
    logs = {"loss": float(RANK), "accuracy": np.float32(2 * RANK), "names": ["kept"]}
    callback.on_epoch_end(0, logs)
    assert logs["loss"] == MEAN and logs["accuracy"] == 2 * MEAN and logs["names"] == ["kept"]


def test_callbacks_are_of_their_module():
    import cloudpickle

    for module in (hvd_keras, hvd_standalone):
        callback = module.callbacks.MetricAverageCallback()
        assert type(callback).__module__ == module.callbacks.__name__
        assert type(cloudpickle.loads(cloudpickle.dumps(callback))) is type(callback)


def test_local_variables_argument():
    make = hvd_keras.callbacks.BroadcastGlobalVariablesCallback
    variable = tf.Variable(1.0)
    assert len(make(0, local_variables=variable)._local_vars) == 1
    assert len(make(0, local_variables=[variable])._local_vars) == 1
    with pytest.raises(ValueError, match="All local variables must be of tf.Variable type."):
        make(0, local_variables=["x"])
    with pytest.raises(TypeError, match="not iterable"):
        make(0, local_variables=3)


def test_arguments_of_optimizers():
    def wrap(**options):
        return hvd_keras.DistributedOptimizer(keras.optimizers.SGD(0.1), **options)

    with pytest.raises(ValueError, match="groups should be a non-negative integer or a list"):
        wrap(groups=-1)
    with pytest.warns(DeprecationWarning, match="num_groups"):
        wrap(num_groups=2)
    wrap(groups=[])
    wrap(backward_passes_per_step=0)
    with pytest.raises(TypeError):
        wrap(groups="a")
    with pytest.raises(ValueError, match="predivide_factor not supported with op != Average"):
        hvd.DistributedOptimizer(
            keras.optimizers.SGD(0.1), gradient_predivide_factor=2.0, op=hvd.Sum
        )
    for other in (3, tf.compat.v1.train.GradientDescentOptimizer(0.1)):
        with pytest.raises(AttributeError, match="from_config"):
            hvd_keras.DistributedOptimizer(other)


@pytest.mark.parametrize("option", ["plain", "groups", "sum"])
def test_tape_and_local_sources(option):
    a, b = tf.Variable([1.0]), tf.Variable([2.0])
    options = {"plain": {}, "groups": {"groups": [[a, b]]}, "sum": {"op": hvd.Sum}}[option]
    with tf.GradientTape() as tape:
        loss = (a * 3 + b) * (RANK + 1.0)
    tape = hvd.DistributedGradientTape(tape, **options)
    tape.register_local_source(b)
    local, shared = tape.get_local_and_global_gradients(loss, [a, b])
    total = SIZE * (SIZE + 1) / 2
    assert np.allclose(shared[0][1], 3 * total / (1 if option == "sum" else SIZE))
    assert shared[0][0] is a and local[0][0] is b
    assert np.allclose(local[0][1], (RANK + 1.0) / SIZE)


def test_generic_names_of_gradients():
    """Ranks whose graphs differ in names of scopes reduce by number."""
    a = tf.Variable([1.0])

    @tf.function
    def step():
        with tf.name_scope(f"scope{RANK}"), tf.GradientTape() as tape:
            loss = a * (RANK + 1.0)
        tape = hvd.DistributedGradientTape(tape)
        return tape.gradient(loss, [a], use_generic_names=True)

    assert np.allclose(step()[0], (SIZE + 1) / 2)
