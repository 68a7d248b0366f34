# SPDX-License-Identifier: Apache-2.0
"""Collectives: values, types, shapes; eager and in tf.function."""

import horovod.tensorflow as hvd
import numpy as np
import pytest
import tensorflow as tf
from collectives import OTHER_OPERATIONS, SHAPES, check_average_argument, check_sum_of_ones

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
RANKS = range(SIZE)

REDUCED = [tf.uint8, tf.int8, tf.int32, tf.int64, tf.float16, tf.float32, tf.float64, tf.bfloat16]
MOVED = REDUCED + [tf.uint16, tf.int16, tf.bool]


def values(dtype, rank, shape=(4, 3)):
    array = (np.arange(np.prod(shape)) % 5 + rank).reshape(shape)
    return tf.cast(tf.constant(array), dtype)


def in_both_modes(function, *arguments):
    """Results of a function, eager and inside tf.function."""
    return function(*arguments), tf.function(function)(*arguments)


def equal(result, expected):
    return np.array_equal(
        np.asarray(tf.cast(result, tf.float64)), np.asarray(tf.cast(expected, tf.float64))
    )


@pytest.mark.parametrize("dtype", REDUCED, ids=lambda d: d.name)
def test_allreduce_sum(dtype):
    expected = sum(values(tf.int64, r) for r in RANKS)
    for result in in_both_modes(lambda t: hvd.allreduce(t, op=hvd.Sum), values(dtype, RANK)):
        assert result.dtype == dtype and result.shape == (4, 3)
        assert equal(result, expected)


@pytest.mark.parametrize("op", OTHER_OPERATIONS)
def test_allreduce_other_operations(op):
    expected = OTHER_OPERATIONS[op]([values(tf.float64, r) for r in RANKS], axis=0)
    tensor = values(tf.float32, RANK)
    for result in in_both_modes(lambda t: hvd.allreduce(t, op=getattr(hvd, op)), tensor):
        assert equal(result, expected)


def test_allreduce_averages_by_default():
    expected = sum(values(tf.float64, r) for r in RANKS) / SIZE
    assert np.allclose(hvd.allreduce(values(tf.float64, RANK)), expected)
    check_average_argument(hvd, values(tf.float64, RANK), expected)


@pytest.mark.parametrize("shape", SHAPES)
def test_allreduce_shapes(shape):
    check_sum_of_ones(hvd, in_both_modes, tf.ones(shape))


def test_factors_are_rounded_to_single_precision():
    tensor = tf.ones([2], tf.float64)
    result = hvd.allreduce(tensor, op=hvd.Sum, prescale_factor=0.3)
    assert np.allclose(result, SIZE * float(np.float32(0.3)), rtol=1e-14)


@pytest.mark.parametrize("name", ["fp16", "bf16"])
def test_compression(name):
    compression = getattr(hvd.Compression, name)
    result = hvd.allreduce(values(tf.float32, RANK), op=hvd.Sum, compression=compression)
    assert result.dtype == tf.float32
    assert equal(result, sum(values(tf.int64, r) for r in RANKS))
    assert hvd.allreduce(tf.constant([3]), op=hvd.Sum, compression=compression).dtype == tf.int32


def test_variable_and_array():
    assert equal(hvd.allreduce(tf.Variable([1.0, 2.0]), op=hvd.Sum), [SIZE, 2 * SIZE])
    assert equal(hvd.allreduce(np.ones(3, np.float32), op=hvd.Sum), [SIZE] * 3)


def test_grouped_allreduce():
    def reduce(*tensors):
        return hvd.grouped_allreduce(list(tensors), op=hvd.Sum)

    tensors = [values(tf.float32, RANK, (n, 2)) for n in (1, 7, 300)]
    for results in in_both_modes(reduce, *tensors):
        for n, result in zip((1, 7, 300), results, strict=True):
            assert result.shape == (n, 2)
            assert equal(result, sum(values(tf.int64, r, (n, 2)) for r in RANKS))
    assert hvd.grouped_allreduce([]) == []


def slices(rank):
    return tf.IndexedSlices(
        values(tf.float32, rank, (rank + 1, 2)), tf.range(rank + 1), tf.constant([SIZE + 1, 2])
    )


def test_sparse_tensors_are_gathered():
    dense = sum(tf.convert_to_tensor(slices(r)) for r in RANKS)
    result = hvd.allreduce(slices(RANK), op=hvd.Sum)
    assert isinstance(result, tf.IndexedSlices)
    assert np.allclose(tf.convert_to_tensor(result), dense)
    mixed = hvd.grouped_allreduce([tf.ones(2), slices(RANK)])
    assert equal(mixed[0], [1, 1])
    assert np.allclose(tf.convert_to_tensor(mixed[1]), dense / SIZE)
    with pytest.raises(NotImplementedError):
        hvd.allreduce(slices(RANK), op=hvd.Max)


@pytest.mark.parametrize("dtype", MOVED + [tf.uint32, tf.uint64], ids=lambda d: d.name)
def test_allgather(dtype):
    expected = tf.concat([values(tf.int64, r, (r + 1, 2)) for r in RANKS], 0)
    if dtype == tf.bool:
        expected = tf.cast(expected, tf.bool)
    for result in in_both_modes(hvd.allgather, values(dtype, RANK, (RANK + 1, 2))):
        assert result.dtype == dtype
        assert equal(result, expected)


def test_allgather_knows_all_but_the_first_dimension():
    @tf.function
    def gather(tensor):
        result = hvd.allgather(tensor)
        assert result.shape.as_list() == [None, 3]
        return result

    gather(tf.ones([2, 3]))


def test_grouped_allgather():
    results = hvd.grouped_allgather([tf.fill([RANK, 2], 1.0), tf.fill([2], float(RANK))])
    assert results[0].shape == (SIZE * (SIZE - 1) // 2, 2)
    assert equal(results[1], np.repeat(np.arange(SIZE), 2))


@pytest.mark.parametrize("dtype", MOVED + [tf.uint32, tf.complex64], ids=lambda d: d.name)
def test_broadcast(dtype):
    for root in RANKS:
        for result in in_both_modes(lambda t, r=root: hvd.broadcast(t, r), values(dtype, RANK)):
            assert np.array_equal(np.asarray(result), np.asarray(values(dtype, root)))


def test_alltoall():
    splits = [(RANK + i) % 3 for i in RANKS]
    rows = np.concatenate([np.full(n, 10 * RANK + i) for i, n in enumerate(splits)])
    expected = [(r + RANK) % 3 for r in RANKS]
    for result, received in in_both_modes(
        lambda t: hvd.alltoall(t, splits), tf.constant(rows, tf.float32)
    ):
        assert equal(received, expected)
        assert equal(result, np.repeat([10 * r + RANK for r in RANKS], expected))
    even = hvd.alltoall(tf.range(2 * SIZE) + 100 * RANK)
    assert equal(
        even, np.concatenate([[100 * r + 2 * RANK, 100 * r + 2 * RANK + 1] for r in RANKS])
    )


@pytest.mark.parametrize("rows", [SIZE * 2, SIZE * 2 + 1])
def test_reducescatter(rows):
    total = sum(values(tf.float64, r, (rows, 2)) for r in RANKS)
    sizes = [rows // SIZE + (r < rows % SIZE) for r in RANKS]
    start = sum(sizes[:RANK])
    tensor = values(tf.float32, RANK, (rows, 2))
    for result in in_both_modes(lambda t: hvd.reducescatter(t, op=hvd.Sum), tensor):
        assert equal(result, total[start : start + sizes[RANK]])
    pair = hvd.grouped_reducescatter([tensor, tensor * 2])
    assert np.allclose(pair[1], 2 * total[start : start + sizes[RANK]] / SIZE)


def test_questions():
    assert hvd.size_op().numpy() == SIZE and hvd.rank_op().numpy() == RANK
    assert hvd.local_size_op().numpy() == hvd.local_size()
    assert hvd.local_rank_op().numpy() == hvd.local_rank()
    assert hvd.size_op(77).numpy() == -3
    assert hvd.process_set_included_op().numpy() == 1
    assert hvd.process_set_included_op(77).numpy() == -3


@pytest.mark.parametrize("is_inplace", [False, True])
def test_broadcast_variables(is_inplace):
    root = SIZE - 1
    variables = [
        tf.Variable(values(dtype, RANK)) for dtype in (tf.float32, tf.int64, tf.bool, tf.uint32)
    ]
    assert hvd.broadcast_variables(variables, root, inplace=is_inplace) is None
    for variable in variables:
        assert np.array_equal(variable.numpy(), values(variable.dtype, root).numpy())


def test_keras_variables_can_be_broadcast():
    layer = tf.keras.layers.Dense(3)
    layer.build((None, 2))
    layer.set_weights([np.full((2, 3), RANK), np.full(3, RANK)])
    hvd.broadcast_variables(layer.variables, 0)
    assert all((weights == 0).all() for weights in layer.get_weights())


def test_objects():
    text = "x" * (1000 * RANK)
    assert hvd.broadcast_object({"rank": RANK, "text": text}, 0) == {"rank": 0, "text": ""}
    assert hvd.allgather_object((RANK, text)) == [(r, "x" * (1000 * r)) for r in RANKS]


def test_dtype_changes_under_one_name():
    for _ in range(3):
        for dtype in (tf.float32, tf.int32, tf.float64):
            for n in (5, 1, 9):
                assert equal(hvd.allreduce(tf.ones([n], dtype), op=hvd.Sum), [SIZE] * n)


def test_captured_tensor_needs_no_name():
    captured = tf.constant([1.0, 2.0])

    @tf.function
    def reduce():
        return hvd.allreduce(captured, op=hvd.Sum), hvd.broadcast(captured, 0)

    assert equal(reduce()[0], [SIZE, 2 * SIZE])


def test_identical_and_constant_collectives_all_run():
    """Nothing is merged or folded into a constant: each call gives what the ranks have now."""
    counter = tf.Variable(0.0)

    @tf.function
    def twice(tensor):
        constant = hvd.allreduce(tf.constant(1.0), op=hvd.Sum, name="constant")
        first = hvd.allreduce(tensor, op=hvd.Sum)
        second = hvd.allreduce(tensor, op=hvd.Sum)
        return counter.assign_add(constant), first + second

    for step in range(1, 4):
        total, both = twice(tf.constant(1.0))
        assert equal(total, SIZE * step) and equal(both, 2 * SIZE)


def test_barrier_and_join():
    assert hvd.barrier().numpy() == 0
    for _ in range(RANK):
        hvd.allreduce(tf.ones(3), op=hvd.Sum)
    last = hvd.join().numpy()
    assert last in RANKS
    assert hvd.allgather_object(int(last)) == [int(last)] * SIZE
