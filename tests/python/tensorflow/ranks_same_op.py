# SPDX-License-Identifier: Apache-2.0
"""One op called several times at once: loops, threads, functions. Results are right, or both calls
fail; they never depend on which call a rank started first."""

import threading
from concurrent.futures import ThreadPoolExecutor

import horovod.tensorflow as hvd
import numpy as np
import pytest
import tensorflow as tf
from horovod.tensorflow import mpi_ops

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
TOTAL = SIZE * (SIZE + 1) / 2  # what 1 on rank 0, 2 on rank 1, ... add up to


def scattered(x):
    """x, after work that takes each rank and iteration a different time."""
    return x + 0.0 * tf.reduce_sum(tf.linalg.matmul(tf.ones([64, 64]), tf.fill([64, 64], x)))


def reduced(x):
    return hvd.allreduce(scattered(x) * (RANK + 1.0), op=hvd.Sum, name="element")


@pytest.mark.parametrize("parallel", [1, 3, 32])
def test_iterations_of_map_fn(parallel):
    @tf.function
    def run(x):
        return tf.map_fn(reduced, x, parallel_iterations=parallel)

    x = tf.range(1.0, 33.0)
    for _ in range(10):
        assert np.allclose(run(x), x * TOTAL)


def test_nested_loops():
    @tf.function
    def run(x):
        return tf.map_fn(
            lambda row: tf.map_fn(reduced, row, parallel_iterations=5), x, parallel_iterations=5
        )

    x = tf.reshape(tf.range(1.0, 37.0), [6, 6])
    for _ in range(5):
        assert np.allclose(run(x), x * TOTAL)


def test_two_calls_of_one_function_and_a_loop_in_it():
    @tf.function
    def inner(x):
        return tf.map_fn(reduced, x), hvd.allreduce(x[0] * (RANK + 1.0), op=hvd.Sum)

    @tf.function
    def run(x):
        (a, first), (b, second) = inner(x), inner(x * 100.0)
        return a, b, first, second

    x = tf.range(1.0, 9.0)
    for _ in range(10):
        a, b, first, second = run(x)
        assert np.allclose(a, x * TOTAL) and np.allclose(b, x * 100 * TOTAL)
        assert np.allclose([first, second], [TOTAL, 100 * TOTAL])


def test_gradients_in_loops():
    @tf.function
    def run(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.map_fn(lambda e: reduced(e) * e, x)
            loss = tf.reduce_sum(y * (RANK + 1.0))
        return tape.gradient(loss, x)

    x = tf.range(1.0, 17.0)
    # d/de of (RANK + 1) * e * sum of (r + 1) * e_r; the allreduce's gradient is itself a sum.
    through_sum = (RANK + 1.0) * TOTAL * x
    direct = (RANK + 1.0) * TOTAL * x
    for _ in range(5):
        assert np.allclose(run(x), through_sum + direct)


@pytest.mark.parametrize("kind", ["allgather", "broadcast", "grouped", "alltoall", "reducescatter"])
def test_other_collectives_in_loops(kind):
    def body(x):
        x = scattered(x)
        mine = tf.fill([SIZE], x * (RANK + 1.0))
        if kind == "allgather":
            return tf.reduce_sum(hvd.allgather(mine)) / SIZE
        if kind == "broadcast":
            return tf.reduce_sum(hvd.broadcast(mine, 0)) / SIZE * TOTAL
        if kind == "grouped":
            a, b = hvd.grouped_allreduce([mine, mine * 3.0], op=hvd.Sum)
            return b[0] - 2.0 * a[0]
        if kind == "alltoall":
            return tf.reduce_sum(hvd.alltoall(mine))
        return hvd.reducescatter(mine, op=hvd.Sum)[0]

    @tf.function
    def run(x):
        return tf.map_fn(body, x)

    x = tf.range(1.0, 13.0)
    for _ in range(5):
        assert np.allclose(run(x), x * TOTAL)


def test_a_rank_that_traced_more():
    """Names in a graph do not depend on what else a rank has traced."""

    @tf.function
    def run(x):
        return tf.map_fn(reduced, x), hvd.allreduce(tf.reduce_sum(x), op=hvd.Sum)

    if RANK == 1:
        for n in range(3, 6):
            run.get_concrete_function(tf.TensorSpec([n], tf.float32))
    elements, total = run(tf.constant([1.0, 2.0]))
    assert np.allclose(elements, [TOTAL, 2 * TOTAL]) and np.allclose(total, 3 * SIZE)


def in_threads(work, count, names=None):
    """The results of work(i) on so many threads, or what it raised."""
    results = [None] * count

    def run(i):
        try:
            results[i] = work(i)
        except Exception as error:  # noqa: BLE001
            results[i] = error

    threads = [
        threading.Thread(target=run, args=(i,), name=names and names[i]) for i in range(count)
    ]
    for thread in threads[:: -1 if RANK % 2 else 1]:
        thread.start()
    for thread in threads:
        thread.join()
    hvd.barrier()
    return results


ROUNDS = 50


def sums(i, name):
    return [
        float(hvd.allreduce((RANK + 1.0) * (100.0 * i + n), op=hvd.Sum, name=name))
        for n in range(ROUNDS)
    ]


def assert_right(results):
    for i, values in enumerate(results):
        assert not isinstance(values, Exception), values
        assert np.allclose(values, [TOTAL * (100.0 * i + n) for n in range(ROUNDS)])


def test_eager_names_are_honoured():
    assert_right(in_threads(lambda i: sums(i, f"thread{i}"), 4))


def test_eager_in_named_threads():
    assert_right(in_threads(lambda i: sums(i, None), 3, names=["red", "green", "blue"]))


def test_main_thread_beside_another():
    results = []
    other = threading.Thread(target=lambda: results.append(sums(1, None)))
    other.start()
    mine = sums(0, None)
    other.join()
    assert_right([mine, *results])


def test_threads_one_after_the_other():
    for i in range(3):
        results = in_threads(lambda _, i=i: sums(i, None), 1)
        assert np.allclose(results[0], [TOTAL * (100.0 * i + n) for n in range(ROUNDS)])


def test_one_thread_of_a_pool():
    with ThreadPoolExecutor(1) as pool:
        assert_right([pool.submit(sums, 0, None).result()])


def test_names_that_differ_between_ranks_in_numbers():
    """Some schedulers put the process' number into the names of threads."""
    results = in_threads(lambda i: sums(i, None), 2, names=[f"a-{100 + RANK}-1", f"b_{RANK}"])
    assert_right(results)


@pytest.mark.parametrize("names", [None, ["same1", "same2", "same3"]])
def test_threads_that_cannot_be_told_apart_fail(names):
    # All live at once, and none calls before all do.
    barrier = threading.Barrier(3)

    def work(i):
        barrier.wait()
        try:
            return float(hvd.allreduce((RANK + 1.0) * 10.0**i, op=hvd.Sum))
        finally:
            barrier.wait()

    for error in in_threads(work, 3, names):
        assert isinstance(error, tf.errors.InvalidArgumentError), error
        assert "the same name as another tensor" in str(error) and "name=" in str(error)
    assert np.allclose(hvd.allreduce(1.0, op=hvd.Sum), SIZE)


def test_tape_in_named_threads():
    variables = [tf.Variable(1.0), tf.Variable(2.0)]

    def work(i):
        grads = []
        for n in range(20):
            with tf.GradientTape() as tape:
                loss = variables[i] * (RANK + 1.0) * (n + 100.0 * i)
            tape = hvd.DistributedGradientTape(tape, op=hvd.Sum)
            grads.append(float(tape.gradient(loss, [variables[i]])[0]))
        return grads

    results = in_threads(work, 2, names=["left", "right"])
    for i, grads in enumerate(results):
        assert np.allclose(grads, [TOTAL * (n + 100.0 * i) for n in range(20)]), grads


@pytest.mark.skipif(not mpi_ops._IS_NATIVE, reason="no native ops")
def test_function_called_by_two_threads_at_once():
    """Rank 0 has two calls in flight: both fail there, whichever of them rank 1 would have met."""

    @tf.function
    def run(x):
        return hvd.allreduce(x, op=hvd.Sum, name="in_function")

    run.get_concrete_function(tf.TensorSpec([], tf.float32))
    hvd.barrier()
    if RANK != 0:
        hvd.barrier()  # only now that one call of rank 0 was refused
        assert np.allclose(run(tf.constant(1.0 + RANK)), TOTAL)
        return
    errors, is_refused = [], threading.Event()

    def work():
        try:
            errors.append(run(tf.constant(1.0)))
        except tf.errors.InvalidArgumentError as error:
            errors.append(error)
        is_refused.set()

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    is_refused.wait()
    hvd.barrier()
    for thread in threads:
        thread.join()
    for error in errors:
        assert isinstance(error, tf.errors.InvalidArgumentError), error
        assert "same name as another tensor" in str(error)
