# SPDX-License-Identifier: Apache-2.0
"""Graphs and sessions of TensorFlow 1: the hook, the optimizer, MonitoredTrainingSession."""

import horovod.tensorflow as hvd
import numpy as np
import pytest
import tensorflow.compat.v1 as tf

tf.disable_eager_execution()
hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()


@pytest.fixture
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


def config():
    return tf.ConfigProto(inter_op_parallelism_threads=2, intra_op_parallelism_threads=1)


def test_two_hundred_collectives_in_a_session(graph):
    results = [hvd.allreduce(tf.fill([3], float(i)), op=hvd.Sum, name=f"s{i}") for i in range(200)]
    with tf.Session(config=config()) as session:
        for _ in range(5):
            for i, result in enumerate(session.run(results)):
                assert np.allclose(result, i * SIZE)


def test_names_and_shapes(graph):
    x = tf.placeholder(tf.float32, [None, 3], name="x/y")
    assert hvd.allreduce(x).op.name == "HorovodAllreduce_x_y_0"
    assert hvd.allgather(x).op.type == "HorovodAllgather"
    assert hvd.allgather(x).shape.as_list() == [None, 3]
    pair = hvd.grouped_allreduce([x, tf.ones([5], name="b")])
    assert pair[0].op.name == "HorovodGroupedAllreduce_x_y_0_b_0"
    assert pair[0].shape.as_list() == [None, 3] and pair[1].shape.as_list() == [5]
    with pytest.raises(ValueError, match="does not support scalar inputs"):
        hvd.reducescatter(tf.constant(1.0))


def test_broadcast_global_variables(graph):
    variable = tf.get_variable("v", initializer=np.full(3, RANK + 1.0), dtype=tf.float64)
    op = hvd.broadcast_global_variables(SIZE - 1)
    with tf.Session(config=config()) as session:
        session.run(tf.global_variables_initializer())
        session.run(op)
        assert np.allclose(session.run(variable), SIZE)


def regression():
    x = tf.constant(np.random.RandomState(RANK).rand(8, 4), tf.float32)
    weights = tf.get_variable("w", initializer=np.full((4, 1), RANK, np.float32))
    return tf.reduce_mean(tf.square(tf.matmul(x, weights) - 1.0)), weights


@pytest.mark.parametrize("passes", [1, 2])
def test_monitored_training_session(graph, passes):
    loss, weights = regression()
    step = tf.train.get_or_create_global_step()
    optimizer = hvd.DistributedOptimizer(
        tf.train.MomentumOptimizer(0.1, 0.9), backward_passes_per_step=passes
    )
    train = optimizer.minimize(loss, global_step=step)
    hooks = [hvd.BroadcastGlobalVariablesHook(0), tf.train.StopAtStepHook(last_step=8)]
    gather = hvd.allgather(tf.reshape(weights, [1, -1]))
    losses = []
    with tf.train.MonitoredTrainingSession(hooks=hooks, config=config()) as session:
        while not session.should_stop():
            losses.append(session.run([loss, train])[0])
            if not session.should_stop():
                everywhere = session.run(gather)
                assert np.allclose(everywhere, everywhere[0], atol=1e-7)
    assert len(losses) == 8 and losses[-1] < losses[0]
    assert optimizer.get_slot_names() == ["momentum"]


def test_local_variables_are_left_alone(graph):
    shared = tf.get_variable("shared", initializer=np.ones(2, np.float32))
    local = tf.get_variable("local", initializer=np.ones(2, np.float32))
    optimizer = hvd.DistributedOptimizer(tf.train.GradientDescentOptimizer(1.0))
    optimizer.register_local_var(local)
    loss = tf.reduce_sum(shared + local) * (RANK + 1.0)
    pairs = optimizer.compute_gradients(loss, [shared, local])
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        grads = session.run([grad for grad, _ in pairs])
    assert np.allclose(grads[0], (SIZE + 1) / 2)
    assert np.allclose(grads[1], (RANK + 1) / SIZE)


def test_adasum_optimizer_keeps_ranks_together(graph):
    loss, weights = regression()
    optimizer = hvd.DistributedOptimizer(tf.train.GradientDescentOptimizer(0.1), op=hvd.Adasum)
    train = optimizer.minimize(loss)
    gather = hvd.allgather(tf.reshape(weights, [1, -1]))
    start = hvd.broadcast_global_variables(0)
    with tf.Session(config=config()) as session:
        session.run(tf.global_variables_initializer())
        session.run(start)
        for _ in range(3):
            session.run(train)
            everywhere = session.run(gather)
            assert np.allclose(everywhere, everywhere[0], atol=1e-6)


def test_objects(graph):
    with tf.Session() as session:
        assert hvd.broadcast_object({"rank": RANK}, 0, session=session) == {"rank": 0}
        assert hvd.allgather_object(RANK, session=session) == list(range(SIZE))
        broadcast = hvd.broadcast_object_fn(root_rank=0, session=session)
        for number in range(3):
            assert broadcast((RANK, number)) == (0, number)


def test_errors(graph):
    bad = hvd.allreduce(tf.ones([2 + RANK]))
    good = hvd.allreduce(tf.ones([2]), op=hvd.Sum)
    with tf.Session(config=config()) as session:
        for _ in range(2):
            with pytest.raises(tf.errors.FailedPreconditionError, match="Mismatched ALLREDUCE"):
                session.run(bad)
            assert np.allclose(session.run(good), SIZE)


def test_state(graph):
    variable = tf.get_variable("v", initializer=np.full(2, RANK, np.float32))
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        state = hvd.elastic.TensorFlowState([variable], session=session, epoch=RANK)
        state.sync()
        assert state.epoch == 0 and np.allclose(session.run(variable), 0)
        variable.load(np.ones(2, np.float32), session)
        state.restore()
        assert np.allclose(session.run(variable), 0)


def test_eager_aggregation_is_refused():
    with tf.Graph().as_default(), pytest.raises(ValueError, match="must be > 0"):
        hvd.LocalGradientAggregationHelper(0, None, False, False, 0, "")


@pytest.mark.parametrize("is_v2", [False, True])
def test_iterations_of_a_loop_do_not_mix(is_v2):
    was_v2 = tf.control_flow_v2_enabled()
    (tf.enable_control_flow_v2 if is_v2 else tf.disable_control_flow_v2)()
    try:
        with tf.Graph().as_default(), tf.Session() as session:
            x = tf.range(1.0, 17.0)
            y = tf.map_fn(
                lambda e: hvd.allreduce(e * (RANK + 1.0), op=hvd.Sum, name="element"),
                x,
                parallel_iterations=8,
            )
            for _ in range(10):
                found = session.run(y)
                assert np.allclose(found, np.arange(1.0, 17.0) * SIZE * (SIZE + 1) / 2), found
    finally:
        (tf.enable_control_flow_v2 if was_v2 else tf.disable_control_flow_v2)()
