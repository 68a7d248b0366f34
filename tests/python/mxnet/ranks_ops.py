# SPDX-License-Identifier: Apache-2.0
"""Collectives: values against NumPy, for every type and form. Every rank runs this file."""

import horovod.mxnet as hvd
import mxnet as mx
import numpy as np
import pytest

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()

FLOATS = ["float16", "float32", "float64"]
REDUCED = ["uint8", "int8", "int32", "int64", *FLOATS]
MOVED = [*REDUCED, "bool"]
DIMS = [1, 2, 3]


def values(dtype, dim, rank=RANK, rows=5):
    """Small whole numbers, so that sums are exact in every type."""
    random = np.random.RandomState(1000 * dim + rank)
    return random.randint(0, 4, [rows, *[5] * (dim - 1)]).astype(dtype)


def filled(dtype, dim, rank=RANK, rows=5):
    return mx.nd.array(values(dtype, dim, rank, rows), dtype=dtype)


def everyone(dim):
    return np.stack([values("float64", dim, rank) for rank in range(SIZE)])


def same(array, expected):
    assert array.dtype == expected.dtype.type and array.shape == expected.shape
    assert np.array_equal(array.asnumpy(), expected), f"{array} != {expected}"


def close(array, expected, tolerance=1e-3):
    assert array.dtype == expected.dtype.type and array.shape == expected.shape
    np.testing.assert_allclose(array.asnumpy(), expected, rtol=tolerance)


# ---- allreduce ----


@pytest.mark.parametrize("dtype", REDUCED)
@pytest.mark.parametrize("dim", DIMS)
def test_allreduce_sum(dtype, dim):
    tensor = filled(dtype, dim)
    expected = everyone(dim).sum(0).astype(dtype)
    same(hvd.allreduce(tensor, op=hvd.Sum, name=f"sum.{dtype}.{dim}"), expected)
    same(hvd.allreduce(tensor, average=False), expected)
    same(tensor, values(dtype, dim))
    assert hvd.allreduce_(tensor, op=hvd.Sum) is tensor
    same(tensor, expected)


@pytest.mark.parametrize("dtype", FLOATS)
def test_allreduce_average_is_the_default(dtype):
    expected = everyone(2).mean(0).astype(dtype)
    close(hvd.allreduce(filled(dtype, 2)), expected)
    close(hvd.allreduce(filled(dtype, 2), average=True), expected)


@pytest.mark.parametrize("op", ["Min", "Max", "Product"])
@pytest.mark.parametrize("dtype", ["int32", "int64", "float32", "float64"])
def test_allreduce_other_ops(op, dtype):
    function = {"Min": np.min, "Max": np.max, "Product": np.prod}[op]
    expected = function(everyone(2), axis=0).astype(dtype)
    same(hvd.allreduce(filled(dtype, 2), op=getattr(hvd, op)), expected)


@pytest.mark.parametrize("dtype", FLOATS)
def test_allreduce_scales(dtype):
    expected = (everyone(2) * 0.5).sum(0) * 4.0
    reduced = hvd.allreduce(filled(dtype, 2), op=hvd.Sum, prescale_factor=0.5, postscale_factor=4.0)
    close(reduced, expected.astype(dtype))


@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_grouped_allreduce(dtype):
    tensors = [filled(dtype, dim) for dim in DIMS]
    expected = [everyone(dim).sum(0).astype(dtype) for dim in DIMS]
    results = hvd.grouped_allreduce(tensors, op=hvd.Sum, name=f"group.{dtype}")
    for result, tensor, dim in zip(results, tensors, DIMS, strict=True):
        same(result, expected[dim - 1])
        same(tensor, values(dtype, dim))
    assert hvd.grouped_allreduce_(tensors, op=hvd.Sum) is tensors
    for tensor, dim in zip(tensors, DIMS, strict=True):
        same(tensor, expected[dim - 1])
    assert hvd.grouped_allreduce([]) == [] and hvd.grouped_allreduce_([]) == []


def test_group_of_several_types():
    a, b = hvd.grouped_allreduce([filled("float32", 2), filled("int32", 1)], op=hvd.Sum)
    same(a, everyone(2).sum(0).astype("float32"))
    same(b, everyone(1).sum(0).astype("int32"))


def test_views_of_one_array():
    """MXNet's engine waits for ever if it is given one variable twice."""
    whole = mx.nd.ones((4, 3)) * (RANK + 1)
    hvd.grouped_allreduce_([whole[0:2], whole[2:4].reshape((3, 2))], op=hvd.Sum, name="views")
    assert (whole.asnumpy() == SIZE * (SIZE + 1) / 2).all()
    hvd.allreduce_(whole[1:3], op=hvd.Sum, name="part")
    assert (whole.asnumpy()[1:3] == SIZE * SIZE * (SIZE + 1) / 2).all()
    assert (whole.asnumpy()[0] == SIZE * (SIZE + 1) / 2).all()


def test_arrays_of_mx_np():
    tensor = mx.np.ones((2, 3)) * (RANK + 1)
    reduced = hvd.allreduce(tensor, op=hvd.Sum)
    assert isinstance(reduced, mx.np.ndarray)
    assert (reduced.asnumpy() == SIZE * (SIZE + 1) / 2).all()
    gathered = hvd.allgather(tensor)
    assert isinstance(gathered, mx.np.ndarray) and gathered.shape == (2 * SIZE, 3)
    with mx.util.np_shape(True):
        scalar = mx.np.array(3.0)
        assert scalar.shape == ()
        assert float(hvd.allreduce(scalar, op=hvd.Sum)) == 3.0 * SIZE


def test_adasum_is_refused():
    with pytest.raises(AssertionError):
        hvd.allreduce(mx.nd.ones(2), op=hvd.Adasum)
    with pytest.raises(AssertionError):
        hvd.reducescatter(mx.nd.ones(2), op=hvd.Adasum)


# ---- broadcast ----


@pytest.mark.parametrize("dtype", MOVED)
@pytest.mark.parametrize("root", sorted({0, SIZE - 1}))
def test_broadcast(dtype, root):
    expected = values(dtype, 2, root)
    tensor = filled(dtype, 2)
    same(hvd.broadcast(tensor, root, name=f"broadcast.{dtype}.{root}"), expected)
    same(tensor, values(dtype, 2))
    assert hvd.broadcast_(tensor, root) is tensor
    same(tensor, expected)


# ---- by rows ----


@pytest.mark.parametrize("dtype", MOVED)
@pytest.mark.parametrize("dim", DIMS)
def test_allgather(dtype, dim):
    gathered = hvd.allgather(filled(dtype, dim, rows=RANK + 1), name=f"gather.{dtype}.{dim}")
    same(gathered, np.concatenate([values(dtype, dim, r, r + 1) for r in range(SIZE)]))


def test_grouped_allgather():
    first, second = hvd.grouped_allgather([filled("float32", 2), filled("int8", 1)], name="both")
    same(first, np.concatenate([values("float32", 2, r) for r in range(SIZE)]))
    same(second, np.concatenate([values("int8", 1, r) for r in range(SIZE)]))
    assert hvd.grouped_allgather([]) == []


@pytest.mark.parametrize("dtype", MOVED)
def test_alltoall(dtype):
    array = np.arange(SIZE * 2).reshape(-1, 1).repeat(3, axis=1) + RANK
    received = hvd.alltoall(mx.nd.array(array.astype(dtype), dtype=dtype))
    expected = np.concatenate(
        [(np.arange(2 * RANK, 2 * RANK + 2) + r).reshape(-1, 1).repeat(3, 1) for r in range(SIZE)]
    )
    same(received, expected.astype(dtype))


@pytest.mark.parametrize("is_array", [False, True])
def test_alltoall_with_splits(is_array):
    """Rank r sends r + 1 rows to the last rank and none to the others."""
    splits = [0] * (SIZE - 1) + [RANK + 1]
    tensor = mx.nd.ones((RANK + 1, 2)) * RANK
    output, received = hvd.alltoall(
        tensor, mx.nd.array(splits, dtype="int32") if is_array else splits
    )
    if RANK == SIZE - 1:
        expected = np.concatenate([np.full((r + 1, 2), r, "float32") for r in range(SIZE)])
        same(output, expected)
        assert received.asnumpy().tolist() == [r + 1 for r in range(SIZE)]
    else:
        assert output.shape == (0, 2)
        assert received.asnumpy().tolist() == [0] * SIZE


@pytest.mark.parametrize("dtype", REDUCED)
def test_reducescatter(dtype):
    rows = 2 * SIZE + 1
    total = sum(values("float64", 2, r, rows) for r in range(SIZE)).astype(dtype)
    parts = np.array_split(total, SIZE)
    same(hvd.reducescatter(filled(dtype, 2, rows=rows), op=hvd.Sum), parts[RANK])
    both = hvd.grouped_reducescatter([filled(dtype, 2, rows=rows)] * 2, op=hvd.Sum)
    same(both[0], parts[RANK])
    same(both[1], parts[RANK])


def test_reducescatter_averages_by_default():
    total = sum(values("float64", 2, r) for r in range(SIZE)) / SIZE
    close(hvd.reducescatter(filled("float32", 2)), np.array_split(total, SIZE)[RANK].astype("f"))
    scaled = hvd.reducescatter(
        filled("float32", 2), op=hvd.Sum, prescale_factor=2.0, postscale_factor=0.5
    )
    close(scaled, np.array_split(total * SIZE, SIZE)[RANK].astype("f"))


def test_reducescatter_of_scalars():
    with mx.util.np_shape(True):
        scalar = mx.np.array(1.0)
        with pytest.raises(ValueError, match="reducescatter does not support scalar inputs"):
            hvd.reducescatter(scalar)
        with pytest.raises(ValueError, match="groued_reducescatter does not support scalar"):
            hvd.grouped_reducescatter([scalar])


# ---- objects, names ----


def test_objects():
    assert hvd.broadcast_object({"rank": RANK, "list": [1, 2]}, root_rank=SIZE - 1) == {
        "rank": SIZE - 1,
        "list": [1, 2],
    }
    assert hvd.allgather_object("x" * RANK) == ["x" * r for r in range(SIZE)]


def test_names_among_ranks():
    from horovod.mxnet.mpi_ops import _full_name, _names

    assert _full_name("allreduce", "w") == "horovod_allreduce.w"
    assert _names("allreduce", "w", [1, 2]) == [
        "horovod_allreduce.w_1of2",
        "horovod_allreduce.w_2of2",
    ]
    assert _full_name("broadcast", "/w") == "w"
    first = _full_name("allgather", None)
    assert first.startswith("horovod_allgather.noname.")
    number = int(first.rpartition(".")[2])
    assert _full_name("alltoall", None) == f"horovod_alltoall.noname.{number + 1}"


def test_compression():
    tensor = filled("float32", 2)
    small, context = hvd.Compression.fp16.compress(tensor)
    assert small.dtype == np.float16
    same(hvd.Compression.fp16.decompress(small, context), values("float32", 2))
    whole, context = hvd.Compression.fp16.compress(filled("int32", 2))
    assert whole.dtype == np.int32
    assert hvd.Compression.none.compress(tensor)[0] is tensor
