# SPDX-License-Identifier: Apache-2.0
"""Collectives: values, types, shapes; eager and compiled."""

import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from collectives import OTHER_OPERATIONS, SHAPES, check_average_argument, check_sum_of_ones

jax.config.update("jax_enable_x64", True)

import horovod.jax as hvd  # noqa: E402

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
RANKS = range(SIZE)
IS_SHORT = os.environ.get("HVD_TEST_SHORT") == "1"

REDUCED = ["uint8", "int8", "int32", "int64", "float16", "float32", "float64", "bfloat16"]
MOVED = [*REDUCED, "uint16", "int16", "bool", "uint32", "uint64", "complex64", "complex128"]
MOVED += [name for name in ("float8_e4m3fn", "float8_e5m2") if hasattr(jnp, name)]
if IS_SHORT:
    REDUCED, MOVED = ["int32", "float32", "bfloat16"], ["float32", "bool", "complex128"]


def values(dtype, rank, shape=(4, 3)):
    array = (np.arange(np.prod(shape, dtype=int)) % 5 + rank).reshape(shape)
    return jnp.asarray(array).astype(dtype)


def in_both_modes(function, *arguments):
    """Results of a function, eager and compiled."""
    return function(*arguments), jax.jit(function)(*arguments)


def equal(result, expected):
    return np.array_equal(
        np.asarray(result).astype(np.complex128), np.asarray(expected).astype(np.complex128)
    )


@pytest.mark.parametrize("dtype", REDUCED)
def test_allreduce_sum(dtype):
    expected = sum(values("int64", r) for r in RANKS)
    for result in in_both_modes(lambda t: hvd.allreduce(t, op=hvd.Sum), values(dtype, RANK)):
        assert result.dtype == dtype and result.shape == (4, 3)
        assert equal(result, expected)


@pytest.mark.parametrize("op", OTHER_OPERATIONS)
def test_allreduce_other_operations(op):
    expected = OTHER_OPERATIONS[op]([np.asarray(values("float64", r)) for r in RANKS], axis=0)
    array = values("float32", RANK)
    for result in in_both_modes(lambda t: hvd.allreduce(t, op=getattr(hvd, op)), array):
        assert equal(result, expected)


@pytest.mark.skipif(SIZE & (SIZE - 1) != 0, reason="Adasum needs a power of 2")
def test_adasum():
    array = jnp.arange(1.0, 5.0)  # equal on all ranks: the mean is the array
    for result in in_both_modes(lambda t: hvd.allreduce(t, op=hvd.Adasum), array):
        assert np.allclose(result, array)


def test_allreduce_averages_by_default():
    expected = sum(values("float64", r) for r in RANKS) / SIZE
    for result in in_both_modes(hvd.allreduce, values("float64", RANK)):
        assert np.allclose(result, expected)
    check_average_argument(hvd, values("float64", RANK), expected)


@pytest.mark.parametrize("shape", SHAPES)
def test_allreduce_shapes(shape):
    check_sum_of_ones(hvd, in_both_modes, jnp.ones(shape))


def test_factors():
    def scale(array):
        return hvd.allreduce(array, op=hvd.Sum, prescale_factor=0.5, postscale_factor=3.0)

    for result in in_both_modes(scale, jnp.ones(3)):
        assert np.allclose(result, 1.5 * SIZE)
    for result in in_both_modes(
        lambda t: hvd.allreduce(t, op=hvd.Sum, prescale_factor=0.0), jnp.ones(3)
    ):
        assert np.allclose(result, 0)


@pytest.mark.parametrize("name", ["fp16", "bf16"])
def test_compression(name):
    compression = getattr(hvd.Compression, name)

    def reduce(array):
        return hvd.allreduce(array, op=hvd.Sum, compression=compression)

    for result in in_both_modes(reduce, values("float32", RANK)):
        assert result.dtype == jnp.float32
        assert equal(result, sum(values("int64", r) for r in RANKS))
    assert reduce(jnp.arange(3)).dtype == jnp.arange(3).dtype


def test_trees_and_other_arrays():
    tree = {"a": jnp.ones(2), "b": [np.ones(3, np.float32), 4.0], "c": None}
    for result in in_both_modes(lambda t: hvd.allreduce(t, op=hvd.Sum), tree):
        assert equal(result["a"], [SIZE] * 2) and result["c"] is None
        assert equal(result["b"][0], [SIZE] * 3) and equal(result["b"][1], 4 * SIZE)
    assert hvd.allreduce({}) == {}


def test_large_arrays_of_a_tree():
    """They travel alone, on a rank that compiles and on one that does not."""
    tree = {"a": values("float32", RANK), "b": jnp.full((512, 1024), RANK + 1.0, jnp.float32)}
    tree["c"] = [values("int32", RANK), jnp.full(1 << 20, RANK, jnp.int8)]

    def reduce(tree):
        return hvd.allreduce(tree, op=hvd.Sum, name="large")

    for function in (reduce, jax.jit(reduce), reduce if RANK % 2 else jax.jit(reduce)):
        total = function(tree)
        assert equal(total["a"], sum(values("float32", r) for r in RANKS))
        assert equal(total["b"], jnp.full((512, 1024), sum(r + 1.0 for r in RANKS)))
        assert equal(total["c"][0], sum(values("int32", r) for r in RANKS))
        assert equal(total["c"][1], jnp.full(1 << 20, sum(RANKS)))


def test_grouped_allreduce():
    def reduce(*arrays):
        return hvd.grouped_allreduce(list(arrays), op=hvd.Sum)

    arrays = [values(d, RANK, (n, 2)) for n, d in ((1, "float32"), (7, "int32"), (300, "float64"))]
    for results in in_both_modes(reduce, *arrays):
        for array, result in zip(arrays, results, strict=True):
            assert result.dtype == array.dtype
            assert equal(result, sum(values("int64", r, array.shape) for r in RANKS))
    assert hvd.grouped_allreduce([]) == []


@pytest.mark.parametrize("dtype", MOVED)
def test_allgather(dtype):
    expected = np.concatenate([np.asarray(values(dtype, r, (2, 3))) for r in RANKS])
    for result in in_both_modes(hvd.allgather, values(dtype, RANK, (2, 3))):
        assert result.dtype == dtype
        assert equal(result, expected)


def test_allgather_of_different_rows():
    expected = np.concatenate([np.asarray(values("int32", r, (r + 1, 2))) for r in RANKS])
    mine = values("int32", RANK, (RANK + 1, 2))
    assert equal(hvd.allgather(mine), expected)
    sizes = [r + 1 for r in RANKS]
    for result in in_both_modes(lambda t: hvd.allgather(t, sizes=sizes), mine):
        assert equal(result, expected)
    with pytest.raises(ValueError, match="must have one number for each"):
        hvd.allgather(mine, sizes=[9] * SIZE)


def test_grouped_allgather():
    def gather(*arrays):
        return hvd.grouped_allgather(list(arrays))

    arrays = [values("float32", RANK, (2, 2)), values("int32", RANK, (3,))]
    for first, second in in_both_modes(gather, *arrays):
        assert equal(first, np.concatenate([values("float32", r, (2, 2)) for r in RANKS]))
        assert equal(second, np.concatenate([values("int32", r, (3,)) for r in RANKS]))


@pytest.mark.parametrize("dtype", MOVED)
def test_broadcast(dtype):
    root = SIZE - 1
    for shape in ((4, 3), (), (0, 2)):
        for result in in_both_modes(lambda t: hvd.broadcast(t, root), values(dtype, RANK, shape)):
            assert result.dtype == dtype and result.shape == shape
            assert equal(result, values(dtype, root, shape))


def test_broadcast_of_random_keys():
    root = SIZE - 1
    for result in in_both_modes(lambda k: hvd.broadcast(k, root), jax.random.key(RANK)):
        assert equal(jax.random.key_data(result), jax.random.key_data(jax.random.key(root)))


@pytest.mark.parametrize("dtype", MOVED)
def test_alltoall(dtype):
    expected = np.concatenate(
        [np.asarray(values(dtype, r, (2 * SIZE, 2)))[2 * RANK : 2 * RANK + 2] for r in RANKS]
    )
    for result in in_both_modes(hvd.alltoall, values(dtype, RANK, (2 * SIZE, 2))):
        assert result.dtype == dtype
        assert equal(result, expected)


def test_alltoall_with_splits():
    splits = [r + 1 for r in RANKS]  # of every rank: r + 1 rows go to rank r
    received = [RANK + 1] * SIZE
    mine = values("float32", RANK, (sum(splits), 2))
    start = sum(splits[:RANK])
    of_ranks = [np.asarray(values("float32", r, (sum(splits), 2))) for r in RANKS]
    expected = np.concatenate([array[start : start + RANK + 1] for array in of_ranks])

    def send(array):
        return hvd.alltoall(array, splits=splits, received_splits=received)

    for output, got in [hvd.alltoall(mine, splits=splits), *in_both_modes(send, mine)]:
        assert equal(output, expected) and got.tolist() == received
    if SIZE > 1:
        with pytest.raises(ValueError, match="need received_splits="):
            jax.jit(lambda t: hvd.alltoall(t, splits=splits))(mine)
    with pytest.raises(TypeError, match="must be known when a function is traced"):
        jax.jit(lambda t, s: hvd.alltoall(t, splits=s))(mine, jnp.array(splits))


@pytest.mark.parametrize("rows", [2 * SIZE, 2 * SIZE + 1])
@pytest.mark.parametrize("op", ["Sum", "Average"])
def test_reducescatter(rows, op):
    def scatter(array):
        return hvd.reducescatter(array, op=getattr(hvd, op))

    total = sum(np.asarray(values("float64", r, (rows, 2))) for r in RANKS)
    expected = np.array_split(total / (SIZE if op == "Average" else 1), SIZE)[RANK]
    for result in in_both_modes(scatter, values("float64", RANK, (rows, 2))):
        assert np.allclose(result, expected)


def test_grouped_reducescatter():
    def scatter(*arrays):
        return hvd.grouped_reducescatter(list(arrays), op=hvd.Sum)

    arrays = [jnp.ones((SIZE, 2)), jnp.ones((3 * SIZE,), jnp.int32)]
    for first, second in in_both_modes(scatter, *arrays):
        assert first.shape == (1, 2) and second.shape == (3,)
        assert np.all(np.asarray(first) == SIZE) and np.all(np.asarray(second) == SIZE)


def test_barrier():
    assert hvd.barrier() is None
    for result in in_both_modes(lambda t: hvd.barrier(after=t), jnp.arange(3.0)):
        assert equal(result, [0, 1, 2])

    @jax.jit
    def unused(array):
        hvd.barrier()
        return array + 1

    assert equal(unused(jnp.zeros(2)), [1, 1])


def test_join():
    assert hvd.join() in RANKS
    assert int(jax.jit(hvd.join)()) in RANKS


def test_join_while_others_go_on():
    for _ in range(RANK):
        assert np.all(np.asarray(hvd.allreduce(jnp.ones(2), op=hvd.Sum, name="uneven")) <= SIZE)
    last = hvd.join()
    assert last in RANKS
    assert equal(hvd.allreduce(jnp.ones(2), op=hvd.Sum), [SIZE] * 2)


def test_objects():
    value = {"rank": RANK, "text": "x" * (RANK + 1)}
    assert hvd.broadcast_object(value, SIZE - 1) == {"rank": SIZE - 1, "text": "x" * SIZE}
    assert [o["rank"] for o in hvd.allgather_object(value)] == list(RANKS)


def test_parameters():
    params = {"w": values("float32", RANK), "n": RANK, "key": jax.random.key(RANK)}
    result = hvd.broadcast_parameters(params, root_rank=SIZE - 1)
    assert equal(result["w"], values("float32", SIZE - 1)) and int(result["n"]) == SIZE - 1
    assert equal(jax.random.key_data(result["key"]), jax.random.key_data(jax.random.key(SIZE - 1)))


def test_basics():
    assert hvd.is_initialized() and hvd.local_size() == SIZE and hvd.local_rank() == RANK
    assert hvd.snapshot()["rank"] == RANK
