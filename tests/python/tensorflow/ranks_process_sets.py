# SPDX-License-Identifier: Apache-2.0
"""Process sets: collectives among some of three ranks."""

import horovod.tensorflow as hvd
import numpy as np
import pytest
import tensorflow as tf

OUTER = hvd.ProcessSet([0, 2])
SECOND = hvd.ProcessSet([1])
hvd.init(process_sets=[OUTER, SECOND])
RANK = hvd.rank()
MINE = SECOND if RANK == 1 else OUTER


def test_collectives_of_a_set():
    ranks = MINE.ranks
    total = sum(r + 1.0 for r in ranks)
    x = tf.ones([2]) * (RANK + 1)
    assert np.allclose(hvd.allreduce(x, op=hvd.Sum, process_set=MINE), total)
    assert np.allclose(hvd.allreduce(x, process_set=MINE), total / len(ranks))
    assert hvd.allgather(x, process_set=MINE).shape == (2 * len(ranks),)
    assert np.allclose(hvd.broadcast(x, ranks[-1], process_set=MINE), ranks[-1] + 1)
    assert hvd.allgather_object(RANK, process_set=MINE) == ranks
    assert hvd.size_op(OUTER.process_set_id).numpy() == 2
    assert hvd.process_set_included_op(OUTER.process_set_id).numpy() == (RANK != 1)


def test_gradients_of_a_set():
    x = tf.Variable(tf.ones([len(MINE.ranks), 2]))
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(hvd.allgather(x, process_set=MINE)) * (RANK + 1)
    mean = sum(r + 1.0 for r in MINE.ranks) / len(MINE.ranks)
    assert np.allclose(tape.gradient(loss, x), mean)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(x) * (RANK + 1)
    tape = hvd.DistributedGradientTape(tape, process_set=OUTER)
    expected = 2.0 if RANK != 1 else RANK + 1.0
    assert np.allclose(tape.gradient(loss, [x])[0], expected)


def test_a_foreign_set_is_refused():
    if RANK == 1:
        with pytest.raises(tf.errors.InvalidArgumentError, match="not a member"):
            hvd.allreduce(tf.ones([2]), process_set=OUTER)
        with pytest.raises(tf.errors.InvalidArgumentError, match="Invalid process set id"):
            hvd.reducescatter(tf.ones([2]), process_set=OUTER)
    assert np.allclose(hvd.allreduce(tf.ones([2]), op=hvd.Sum), 3)
