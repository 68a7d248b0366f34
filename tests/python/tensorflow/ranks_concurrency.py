# SPDX-License-Identifier: Apache-2.0
"""Hundreds of collectives in one graph, on two threads of TensorFlow, in different orders."""

import random
import threading

import numpy as np
import tensorflow as tf

tf.config.threading.set_inter_op_parallelism_threads(2)
tf.config.threading.set_intra_op_parallelism_threads(1)

import horovod.tensorflow as hvd  # noqa: E402

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
COUNT = 200


def chained(order):
    """COUNT collectives, each started when this rank's order says so."""
    results, previous = {}, None
    for index in order:
        with tf.control_dependencies([previous] if previous is not None else None):
            start = tf.random.uniform([]) * 0.0
        results[index] = hvd.allreduce(
            tf.fill([index % 7 + 1], float(index)) + start, op=hvd.Sum, name=f"c{index}"
        )
        previous = start
    return [results[index] for index in range(COUNT)]


def check(results):
    for index, result in enumerate(results):
        assert np.allclose(result, index * SIZE), index


def test_no_deadlock_whatever_the_order():
    for run in range(4):
        order = list(range(COUNT))
        random.Random(1000 * run + RANK).shuffle(order)
        function = tf.function(lambda order=order: chained(order))
        for _ in range(25):
            check(function())


def test_nothing_is_chained_by_control_edges():
    @tf.function
    def many():
        return [hvd.allreduce(tf.ones([3]), name=f"n{i}") for i in range(COUNT)]

    nodes = many.get_concrete_function().graph.get_operations()
    collectives = [node for node in nodes if node.type == "HorovodAllreduce"]
    assert len(collectives) == COUNT
    assert not any(node.control_inputs for node in collectives)


def test_loop_runs_one_node_many_times():
    @tf.function
    def loop(n):
        def body(i, total):
            return i + 1, total + hvd.allreduce(tf.ones([5]), op=hvd.Sum, name="in_loop")

        return tf.while_loop(
            lambda i, total: i < n, body, (tf.constant(0), tf.zeros([5])), parallel_iterations=10
        )[1]

    assert np.allclose(loop(tf.constant(25)), 25 * SIZE)


def test_vectorised_loop_keeps_collectives_in_flight():
    @tf.function
    def loop(n):
        array = tf.TensorArray(tf.float32, size=n)
        for i in tf.range(n):
            array = array.write(i, hvd.allreduce(tf.ones([]), op=hvd.Sum, name="element"))
        return array.stack()

    assert np.allclose(loop(tf.constant(30)), SIZE)


def test_branches():
    @tf.function
    def choose(flag):
        return tf.cond(
            flag,
            lambda: hvd.allreduce(tf.ones([2]), op=hvd.Sum, name="yes"),
            lambda: hvd.allreduce(tf.zeros([2]), op=hvd.Sum, name="no"),
        )

    assert np.allclose(choose(tf.constant(True)), SIZE)
    assert np.allclose(choose(tf.constant(False)), 0)


def test_threads_of_python():
    """Eager ops of several threads, side by side under names of their own."""
    hvd.barrier()
    errors = []

    def work(i):
        try:
            for _ in range(20):
                result = hvd.allreduce(tf.fill([4], float(i)), op=hvd.Sum, name=f"eager{i}")
                assert np.allclose(result, i * SIZE)
        except Exception as error:  # noqa: BLE001
            errors.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
