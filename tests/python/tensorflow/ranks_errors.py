# SPDX-License-Identifier: Apache-2.0
"""Errors arrive on every rank as TensorFlow's classes, and the next op works."""

import horovod.tensorflow as hvd
import numpy as np
import pytest
import tensorflow as tf

with pytest.raises(tf.errors.FailedPreconditionError, match="has not been initialized"):
    hvd.allgather(tf.ones(1))
with pytest.raises(ValueError, match="has not been initialized"):
    hvd.allreduce(tf.ones(1))

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()

DISAGREEMENTS = {
    "shape": (lambda: hvd.allreduce(tf.ones([2 + RANK])), "Mismatched ALLREDUCE tensor shapes"),
    "dtype": (
        lambda: hvd.allreduce(tf.ones([2], [tf.float32, tf.float64][RANK])),
        "Mismatched data types",
    ),
    "operation": (
        lambda: hvd.allreduce(tf.ones([2]), op=[hvd.Sum, hvd.Max][RANK]),
        "Mismatched reduction operation",
    ),
    "scale": (
        lambda: hvd.allreduce(tf.ones([2]), op=hvd.Sum, prescale_factor=1.0 + RANK),
        "Mismatched prescale",
    ),
    "root": (lambda: hvd.broadcast(tf.ones([2]), RANK), "Mismatched BROADCAST root ranks"),
    "rows": (lambda: hvd.allgather(tf.ones([2, 2 + RANK])), "Mismatched ALLGATHER tensor shapes"),
    "group": (
        lambda: hvd.grouped_allreduce([tf.ones([2 + RANK]), tf.ones([2])]),
        "Mismatched ALLREDUCE tensor shapes",
    ),
}


@pytest.mark.parametrize("is_graph", [False, True])
@pytest.mark.parametrize("kind", DISAGREEMENTS)
def test_disagreement(kind, is_graph):
    function, message = DISAGREEMENTS[kind]
    with pytest.raises(tf.errors.FailedPreconditionError, match=message):
        (tf.function(function) if is_graph else function)()
    assert np.allclose(hvd.allreduce(tf.ones([3]), op=hvd.Sum), SIZE)


@pytest.mark.parametrize("is_graph", [False, True])
def test_bad_arguments(is_graph):
    def check(function, message):
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            (tf.function(function) if is_graph else function)()

    check(lambda: hvd.alltoall(tf.ones([4]), [9] * SIZE), "greater than the first dimension")
    check(lambda: hvd.alltoall(tf.ones([4]), [1] * (SIZE + 1)), "does not equal number of workers")
    check(lambda: hvd.alltoall(tf.ones([4]), [[1, 1]]), "1D splits")
    check(lambda: hvd.broadcast(tf.ones([4]), SIZE), "invalid root rank")


def test_scalars():
    with pytest.raises((tf.errors.InvalidArgumentError, ValueError)):
        hvd.reducescatter(tf.constant(1.0))
    with pytest.raises((tf.errors.FailedPreconditionError, tf.errors.InvalidArgumentError)):
        hvd.allgather(tf.constant(1.0))
    with pytest.raises(ValueError, match="Out of range dim_index 0"):
        tf.function(lambda: hvd.allgather(tf.constant(1.0)))()
    with pytest.raises(tf.errors.AbortedError, match="only supports AVERAGE and SUM"):
        hvd.reducescatter(tf.ones([4]), op=hvd.Max)


def test_types():
    with pytest.raises(tf.errors.InvalidArgumentError, match="is not in the list of allowed"):
        hvd.allreduce(tf.constant([True]))
    with pytest.raises(TypeError, match="not in list of allowed values"):
        tf.function(lambda: hvd.allreduce(tf.constant([True])))()


def test_process_sets_that_do_not_exist():
    unknown = hvd.ProcessSet([0])
    with pytest.raises(ValueError, match="has not been registered"):
        hvd.allreduce(tf.ones(1), process_set=unknown)
    with pytest.raises(ValueError, match="has not been registered"):
        hvd.allgather(tf.ones(1), process_set=unknown)
    unknown.process_set_id = 55
    with pytest.raises(ValueError):
        hvd.allreduce(tf.ones(1), process_set=unknown)
    with pytest.raises(tf.errors.InvalidArgumentError, match="does not exist"):
        hvd.allgather(tf.ones(1), process_set=unknown)


def test_one_error_does_not_stop_the_others():
    @tf.function
    def step():
        good = [hvd.allreduce(tf.ones([4]), name=f"good{i}") for i in range(20)]
        return tf.add_n(good), hvd.allreduce(tf.ones([2 + RANK]), name="bad")

    for _ in range(3):
        with pytest.raises(tf.errors.FailedPreconditionError, match="Mismatched"):
            step()
    assert np.allclose(hvd.allreduce(tf.ones([3]), op=hvd.Sum), SIZE)


def test_graph_mode_only():
    with pytest.raises(RuntimeError, match="does not support eager execution"):
        hvd.broadcast_global_variables(0)
