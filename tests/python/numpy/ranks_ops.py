# SPDX-License-Identifier: Apache-2.0
"""Collectives on NumPy arrays: values, types, forms, sets, objects. Every rank runs this file."""

import horovod.numpy as hvd
import numpy as np
import pytest

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()

FLOATS = ["float16", "float32", "float64"]
REDUCED = ["uint8", "int8", "int32", "int64", *FLOATS]
MOVED = [*REDUCED, "uint16", "int16", "bool"]
DIMS = [0, 1, 2, 3]


def filled(dtype, dim, rank=RANK, rows=5):
    """Small whole numbers, so that sums are exact in every type."""
    random = np.random.RandomState(1000 * dim + rank)
    shape = [rows, *[5] * (dim - 1)] if dim else []
    return np.asarray(random.randint(0, 4, shape)).astype(dtype)


def everyone(dim):
    return np.stack([filled("float64", dim, rank) for rank in range(SIZE)])


def same(array, expected):
    assert type(array) is np.ndarray
    assert array.dtype == expected.dtype and array.shape == expected.shape
    assert np.array_equal(array, expected), f"{array} != {expected}"


@pytest.mark.parametrize("dtype", MOVED)
@pytest.mark.parametrize("dim", DIMS)
def test_allreduce_sum(dtype, dim):
    array = filled(dtype, dim)
    expected = everyone(dim).sum(0).astype(dtype)
    same(hvd.allreduce(array, f"sum.{dtype}.{dim}", hvd.Sum), expected)
    same(hvd.synchronize(hvd.allreduce_async(array, op=hvd.Sum)), expected)
    same(array, filled(dtype, dim))
    assert hvd.allreduce_(array, op=hvd.Sum) is array
    same(array, expected)


@pytest.mark.parametrize("dtype", FLOATS)
def test_average_is_the_default(dtype):
    expected = everyone(2).mean(0)
    np.testing.assert_allclose(hvd.allreduce(filled(dtype, 2)), expected, rtol=1e-3)


@pytest.mark.parametrize("op", ["Min", "Max", "Product"])
def test_other_ops(op):
    function = {"Min": np.min, "Max": np.max, "Product": np.prod}[op]
    expected = function(everyone(2), axis=0).astype("int64")
    same(hvd.allreduce(filled("int64", 2), op=getattr(hvd, op)), expected)


def test_scales():
    expected = everyone(2).sum(0) * 0.5 * 4.0
    result = hvd.allreduce(
        filled("float64", 2), op=hvd.Sum, prescale_factor=0.5, postscale_factor=4.0
    )
    np.testing.assert_allclose(result, expected)


def test_grouped_allreduce():
    arrays = [filled("float32", 2), filled("int32", 1), filled("float32", 0)]
    expected = [everyone(2).sum(0), everyone(1).sum(0), everyone(0).sum(0)]
    for form in (
        lambda: hvd.grouped_allreduce(arrays, "group", hvd.Sum),
        lambda: hvd.synchronize(hvd.grouped_allreduce_async(arrays, op=hvd.Sum)),
    ):
        for result, array, value in zip(form(), arrays, expected, strict=True):
            same(result, np.asarray(value).astype(array.dtype))
    (alone,) = hvd.grouped_allreduce([arrays[0]], "one", hvd.Sum)
    same(alone, expected[0].astype("float32"))
    with pytest.raises(ValueError, match="at least one array"):
        hvd.grouped_allreduce([])


@pytest.mark.parametrize("dtype", MOVED)
@pytest.mark.parametrize("root", sorted({0, SIZE - 1}))
def test_broadcast(dtype, root):
    array, expected = filled(dtype, 2), filled(dtype, 2, root)
    same(hvd.broadcast(array, root), expected)
    same(hvd.synchronize(hvd.broadcast_async(array, root)), expected)
    assert hvd.broadcast_(array, root, "in place") is array
    same(array, expected)
    assert hvd.synchronize(hvd.broadcast_async_(array, root)) is array


@pytest.mark.parametrize("dtype", MOVED)
def test_allgather(dtype):
    expected = np.concatenate([filled(dtype, 2, r, r + 1) for r in range(SIZE)])
    same(hvd.allgather(filled(dtype, 2, rows=RANK + 1)), expected)
    handle = hvd.allgather_async(filled(dtype, 2, rows=RANK + 1), f"gather.{dtype}")
    same(hvd.synchronize(handle), expected)


def test_allgather_without_rows():
    rows = hvd.allgather(np.ones((0 if RANK == 0 else 2, 3), dtype="int8"))
    same(rows, np.ones((2 * (SIZE - 1), 3), dtype="int8"))


def test_alltoall():
    array = np.arange(2 * SIZE) + 10 * RANK
    expected = np.concatenate([[2 * RANK + 10 * r, 2 * RANK + 1 + 10 * r] for r in range(SIZE)])
    same(hvd.alltoall(array), expected)
    same(hvd.synchronize(hvd.alltoall_async(array)), expected)
    splits = [0] * (SIZE - 1) + [2 * SIZE]
    output, received = hvd.alltoall(array, np.array(splits))
    is_last = RANK == SIZE - 1
    assert received.tolist() == [2 * SIZE if is_last else 0] * SIZE
    assert len(output) == (2 * SIZE * SIZE if is_last else 0)


@pytest.mark.parametrize("dtype", REDUCED)
def test_reducescatter(dtype):
    rows = 2 * SIZE + 1
    total = sum(filled("float64", 2, r, rows) for r in range(SIZE)).astype(dtype)
    expected = np.array_split(total, SIZE)[RANK]
    same(hvd.reducescatter(filled(dtype, 2, rows=rows), op=hvd.Sum), expected)
    handle = hvd.reducescatter_async(filled(dtype, 2, rows=rows), op=hvd.Sum)
    same(hvd.synchronize(handle), expected)


# ---- memory of other kinds ----


class WithInterface:
    """An object of another library, with NumPy's way to its memory."""

    def __init__(self, array):
        self._array = array
        self.__array_interface__ = array.__array_interface__


class WithDlpack:
    """An object of another library, with DLPack only."""

    def __init__(self, array):
        self._array = array

    def __dlpack__(self, **options):
        return self._array.__dlpack__()

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()


def test_memory_of_others():
    array = filled("float32", 2)
    expected = everyone(2).sum(0).astype("float32")
    same(hvd.allreduce(WithInterface(array), op=hvd.Sum), expected)
    same(hvd.allreduce(WithDlpack(array), op=hvd.Sum), expected)
    hvd.allreduce_(WithInterface(array), op=hvd.Sum)
    same(array, expected)
    same(hvd.allreduce([1.0, 2.0], op=hvd.Sum), np.array([1.0, 2.0]) * SIZE)
    same(hvd.allreduce(3, op=hvd.Sum), np.array(3 * SIZE))
    same(hvd.allreduce(np.float32(2), op=hvd.Sum), np.array(2 * SIZE, dtype="float32"))


@pytest.mark.parametrize(
    "view",
    [
        lambda a: a.T,
        lambda a: a[::2],
        lambda a: a[:, 1:3],
        lambda a: a[::-1],
        lambda a: a.astype(">f4"),
    ],
    ids=["transposed", "every other", "columns", "backwards", "big-endian"],
)
def test_memory_that_is_not_dense(view):
    array = filled("float32", 2)
    expected = view(everyone(2).sum(0).astype("float32"))
    result = hvd.allreduce(view(array), op=hvd.Sum)
    assert np.array_equal(result, expected)
    part = view(array)
    assert hvd.allreduce_(part, op=hvd.Sum) is part
    assert np.array_equal(part, expected)


def test_in_place_is_refused():
    fixed = np.ones(3)
    fixed.flags.writeable = False
    with pytest.raises(ValueError, match="can be written to"):
        hvd.allreduce_(fixed)
    for wrong in ([1.0, 2.0], 3.0, np.float32(1)):
        with pytest.raises(TypeError, match="in place needs a NumPy array"):
            hvd.allreduce_(wrong)


# ---- handles, joins, sets, objects ----


def test_many_handles_in_another_order():
    arrays = [np.full(10, k + RANK) for k in range(100)]
    order = np.random.RandomState(RANK).permutation(100)
    handles = {k: hvd.allreduce_async(arrays[k], f"shuffled.{k}", hvd.Sum) for k in order}
    for k in range(100):
        assert (hvd.synchronize(handles[k]) == k * SIZE + SIZE * (SIZE - 1) // 2).all()


def test_poll():
    handle = hvd.allreduce_async(np.ones(3), "polled")
    assert hvd.poll(handle) is False
    while not hvd.poll(handle):
        pass
    assert (hvd.synchronize(handle) == 1).all()
    with pytest.raises(ValueError, match="was not created or has been cleared"):
        hvd.poll(handle)


def test_barrier_and_join():
    hvd.barrier()
    for k in range(RANK):
        result = hvd.allreduce(np.ones(2), f"uneven.{k}", hvd.Sum)
        assert (result == SIZE - 1 - k).all()
    assert hvd.join() in range(SIZE)
    assert (hvd.allreduce(np.ones(2), op=hvd.Sum) == SIZE).all()


def test_objects():
    assert hvd.broadcast_object({"rank": RANK}, SIZE - 1) == {"rank": SIZE - 1}
    assert hvd.allgather_object("x" * RANK, "strings") == ["x" * r for r in range(SIZE)]


def test_process_sets():
    if SIZE < 3:
        pytest.skip("needs a set that is not all ranks")
    pair = hvd.add_process_set([0, SIZE - 1])
    if pair.included():
        result = hvd.allreduce(np.array([float(RANK)]), op=hvd.Sum, process_set=pair)
        assert result[0] == SIZE - 1
        assert hvd.allgather(np.array([RANK]), process_set=pair).tolist() == [0, SIZE - 1]
        assert hvd.broadcast_object(RANK, SIZE - 1, process_set=pair) == SIZE - 1
        assert hvd.allgather_object(RANK, process_set=pair) == [0, SIZE - 1]
        hvd.barrier(pair)
    assert hvd.remove_process_set(pair)
    with pytest.raises(ValueError, match="has not been registered"):
        hvd.allreduce(np.ones(1), process_set=pair)


def test_names_among_ranks():
    from horovod.common.handles import group_names, op_name

    assert op_name("allreduce.", "w") == "allreduce.w"
    assert op_name("allreduce.", "/w") == "w"
    assert op_name("allreduce.", None) is None and op_name("allreduce.", "") is None
    assert group_names("grouped_allreduce.", "/w", 2) == ["w_1of2", "w_2of2"]
    result = hvd.allreduce(np.ones(2), "/shared name", hvd.Sum)
    assert (result == SIZE).all()
