# SPDX-License-Identifier: Apache-2.0
"""Every collective of torch.distributed, for many types, shapes and layouts."""

import functools
import operator

import pytest
import torch
import torch.distributed as dist
from torch.distributed import ReduceOp
from world import begin

RANK, SIZE = begin()

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
INTS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
MOVED = [*FLOATS, *INTS, torch.bool, torch.complex64, torch.complex128, torch.float8_e4m3fn]


def values(rank, shape=(2, 3), dtype=torch.float32):
    """What a rank gives: small whole numbers, different on each."""
    count = int(torch.Size(shape).numel())
    return (torch.arange(count) % 5 + rank + 1).reshape(shape).to(dtype)


def reduced(op, dtype=torch.float32, shape=(2, 3)):
    return functools.reduce(op, [values(r, shape, dtype) for r in range(SIZE)])


def test_the_world_is_that_of_the_launcher():
    import horovod.torch as hvd

    assert (hvd.rank(), hvd.size()) == (RANK, SIZE)
    assert dist.get_backend() == "horovod"


@pytest.mark.parametrize("dtype", [*FLOATS, *INTS], ids=str)
@pytest.mark.parametrize(
    "op, fold",
    [
        (ReduceOp.SUM, operator.add),
        (ReduceOp.PRODUCT, operator.mul),
        (ReduceOp.MIN, torch.minimum),
        (ReduceOp.MAX, torch.maximum),
    ],
    ids=["sum", "product", "min", "max"],
)
def test_all_reduce(dtype, op, fold):
    tensor = values(RANK, dtype=dtype)
    dist.all_reduce(tensor, op)
    assert torch.equal(tensor, reduced(fold, dtype))


@pytest.mark.parametrize(
    "op, fold",
    [
        (ReduceOp.BAND, torch.bitwise_and),
        (ReduceOp.BOR, torch.bitwise_or),
        (ReduceOp.BXOR, torch.bitwise_xor),
    ],
    ids=["and", "or", "xor"],
)
@pytest.mark.parametrize("dtype", [*INTS, torch.bool], ids=str)
def test_all_reduce_of_bits(op, fold, dtype):
    tensor = values(RANK, dtype=dtype)
    dist.all_reduce(tensor, op)
    assert torch.equal(tensor, reduced(fold, dtype))


def test_bits_of_floats_are_refused():
    with pytest.raises(RuntimeError, match="integral"):
        dist.all_reduce(torch.ones(2), ReduceOp.BOR)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.complex64], ids=str)
def test_all_reduce_average(dtype):
    tensor = values(RANK, dtype=dtype)
    dist.all_reduce(tensor, ReduceOp.AVG)
    total = reduced(operator.add, dtype)
    mean = total / SIZE if total.is_floating_point() or total.is_complex() else total // SIZE
    torch.testing.assert_close(tensor, mean)


def test_all_reduce_premultiplied():
    tensor = values(RANK)
    dist.all_reduce(tensor, dist._make_nccl_premul_sum(3.0))
    assert torch.equal(tensor, 3 * reduced(operator.add))


def test_all_reduce_of_complex():
    tensor = values(RANK, dtype=torch.complex64) * (1 + 2j)
    dist.all_reduce(tensor)
    torch.testing.assert_close(tensor, reduced(operator.add, torch.complex64) * (1 + 2j))
    conjugated = (values(RANK, dtype=torch.complex64) * (1 + 2j)).conj()
    dist.group.WORLD.allreduce([conjugated]).wait()  # dist.all_reduce() refuses it by itself
    torch.testing.assert_close(conjugated, reduced(operator.add, torch.complex64) * (1 - 2j))
    with pytest.raises((RuntimeError, ValueError)):
        dist.all_reduce(torch.ones(2, dtype=torch.complex64), ReduceOp.MAX)


def test_layouts():
    for shape in [(), (0,), (3, 0), (1,), (4, 5)]:
        tensor = values(RANK, shape)
        dist.all_reduce(tensor)
        assert torch.equal(tensor, reduced(operator.add, shape=shape))
    transposed = values(RANK, (4, 5)).t()
    memory = transposed.data_ptr()
    dist.all_reduce(transposed)
    assert transposed.data_ptr() == memory
    assert torch.equal(transposed, reduced(operator.add, shape=(4, 5)).t())
    base = torch.zeros(6, 6)
    base[::2, 1::2] = values(RANK, (3, 3))
    dist.all_reduce(base[::2, 1::2])
    assert torch.equal(base[::2, 1::2], reduced(operator.add, shape=(3, 3)))
    assert base[1::2].abs().sum() == 0


def test_sparse():
    where = torch.tensor([[RANK, SIZE]])
    tensor = torch.sparse_coo_tensor(where, torch.tensor([[1.0, 2.0], [3.0, 4.0]]), (SIZE + 1, 2))
    dist.all_reduce(tensor)
    expected = torch.tensor([[1.0, 2.0]] * SIZE + [[3.0 * SIZE, 4.0 * SIZE]])
    assert torch.equal(tensor.to_dense(), expected)


def test_all_reduce_coalesced():
    tensors = [values(RANK), values(RANK, (5,)), values(RANK, ())]
    with dist._coalescing_manager() as together:
        pass
    dist.all_reduce_coalesced(tensors)
    for tensor in tensors:
        assert torch.equal(tensor, reduced(operator.add, shape=tensor.shape))
    del together


@pytest.mark.parametrize("root", sorted({0, SIZE - 1}))
def test_reduce(root):
    tensor = values(RANK)
    dist.reduce(tensor, root)
    assert torch.equal(tensor, reduced(operator.add) if root == RANK else values(RANK))


@pytest.mark.parametrize("root", sorted({0, SIZE - 1}))
@pytest.mark.parametrize("dtype", MOVED, ids=str)
def test_broadcast(root, dtype):
    tensor = values(RANK, dtype=dtype)
    dist.broadcast(tensor, root)
    assert torch.equal(tensor.float(), values(root, dtype=dtype).float())
    strided = values(RANK, (4, 6)).to(dtype)[:, ::2]
    dist.broadcast(strided, root)
    assert torch.equal(strided.float(), values(root, (4, 6)).to(dtype)[:, ::2].float())


@pytest.mark.parametrize("dtype", MOVED, ids=str)
def test_all_gather(dtype):
    outputs = [torch.zeros(2, 3, dtype=dtype) for _ in range(SIZE)]
    dist.all_gather(outputs, values(RANK, dtype=dtype))
    for rank, output in enumerate(outputs):
        assert torch.equal(output.float(), values(rank, dtype=dtype).float())


def test_all_gather_of_different_sizes():
    outputs = [torch.zeros(rank + 1) for rank in range(SIZE)]
    dist.all_gather(outputs, values(RANK, (RANK + 1,)))
    for rank, output in enumerate(outputs):
        assert torch.equal(output, values(rank, (rank + 1,)))


def test_all_gather_into_tensor():
    output = torch.zeros(SIZE * 2, 3)
    dist.all_gather_into_tensor(output, values(RANK))
    assert torch.equal(output, torch.cat([values(r) for r in range(SIZE)]))
    strided = torch.zeros(SIZE * 2, 6)[:, ::2]
    dist.all_gather_into_tensor(strided, values(RANK))
    assert torch.equal(strided, output)
    with pytest.raises(ValueError, match="elements"):
        dist.all_gather_into_tensor(torch.zeros(1), values(RANK))


@pytest.mark.parametrize("root", sorted({0, SIZE - 1}))
def test_gather_and_scatter(root):
    outputs = [torch.zeros(2, 3) for _ in range(SIZE)] if root == RANK else None
    dist.gather(values(RANK), outputs, root)
    for rank, output in enumerate(outputs or []):
        assert torch.equal(output, values(rank))
    inputs = [values(rank + 10) for rank in range(SIZE)] if root == RANK else None
    output = torch.zeros(2, 3)
    dist.scatter(output, inputs, root)
    assert torch.equal(output, values(RANK + 10))


@pytest.mark.parametrize("op", [ReduceOp.SUM, ReduceOp.AVG, ReduceOp.MAX], ids=str)
def test_reduce_scatter(op):
    inputs = [values(RANK) * (part + 1) for part in range(SIZE)]
    output = torch.zeros(2, 3)
    dist.reduce_scatter(output, inputs, op)
    rows = torch.stack([values(r) * (RANK + 1) for r in range(SIZE)])
    expected = {ReduceOp.SUM: rows.sum(0), ReduceOp.AVG: rows.mean(0), ReduceOp.MAX: rows.amax(0)}
    torch.testing.assert_close(output, expected[op])
    into = torch.zeros(2, 3)
    dist.reduce_scatter_tensor(into, torch.cat(inputs), op)
    torch.testing.assert_close(into, expected[op])


def test_reduce_scatter_of_bits_and_of_different_sizes():
    inputs = [torch.tensor([RANK + part], dtype=torch.int32) for part in range(SIZE)]
    output = torch.zeros(1, dtype=torch.int32)
    dist.reduce_scatter(output, inputs, ReduceOp.BXOR)
    assert output.item() == functools.reduce(operator.xor, [r + RANK for r in range(SIZE)])
    uneven = [values(RANK, (part + 1,)) for part in range(SIZE)]
    result = torch.zeros(RANK + 1)
    dist.reduce_scatter(result, uneven)
    assert torch.equal(result, reduced(operator.add, shape=(RANK + 1,)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64, torch.bool], ids=str)
def test_all_to_all(dtype):
    inputs = [values(RANK + to, (to + 1,), dtype) for to in range(SIZE)]
    outputs = [torch.zeros(RANK + 1, dtype=dtype) for _ in range(SIZE)]
    dist.all_to_all(outputs, inputs)
    for rank, output in enumerate(outputs):
        assert torch.equal(output, values(rank + RANK, (RANK + 1,), dtype))


def test_all_to_all_single():
    sent = torch.arange(SIZE * 2.0) + 100 * RANK
    got = torch.zeros(SIZE * 2)
    dist.all_to_all_single(got, sent)
    expected = [100.0 * r + 2 * RANK + i for r in range(SIZE) for i in (0, 1)]
    assert got.tolist() == expected
    splits = [rank + 1 for rank in range(SIZE)]
    rows = torch.full((sum(splits), 2), float(RANK))
    result = torch.zeros(SIZE * (RANK + 1), 2)
    dist.all_to_all_single(result, rows, [RANK + 1] * SIZE, splits)
    assert result[:, 0].tolist() == [float(r) for r in range(SIZE) for _ in range(RANK + 1)]
    with pytest.raises(ValueError, match="plits"):
        dist.all_to_all_single(result, rows, [SIZE + 5] * SIZE, [SIZE + 5] * SIZE)


def test_objects():
    gathered = [None] * SIZE
    dist.all_gather_object(gathered, {"rank": RANK, "text": "x" * RANK * 100})
    assert [item["rank"] for item in gathered] == list(range(SIZE))
    things = [[RANK, "a"], None]
    dist.broadcast_object_list(things, SIZE - 1)
    assert things == [[SIZE - 1, "a"], None]
    mine = [None]
    dist.scatter_object_list(mine, [f"for {r}" for r in range(SIZE)] if RANK == 0 else None, 0)
    assert mine == [f"for {RANK}"]
    collected = [None] * SIZE if RANK == 0 else None
    dist.gather_object(RANK * 2, collected, 0)
    assert RANK != 0 or collected == [2 * r for r in range(SIZE)]


def test_many_in_flight_end_in_any_order():
    tensors = [values(RANK, (n % 7 + 1,)) for n in range(60)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    for work in reversed(works):
        work.wait()
    for tensor in tensors:
        assert torch.equal(tensor, reduced(operator.add, shape=tensor.shape))


def test_coalescing():
    tensors = [values(RANK), values(RANK, (4,))]
    with dist._coalescing_manager(device=torch.device("cpu"), async_ops=True) as manager:
        for tensor in tensors:
            dist.all_reduce(tensor)
    manager.wait()
    for tensor in tensors:
        assert torch.equal(tensor, reduced(operator.add, shape=tensor.shape))


def test_a_tensor_of_another_device_is_refused():
    with pytest.raises(RuntimeError):
        dist.all_reduce(torch.zeros(2, device="meta"))


def test_barrier():
    dist.barrier()
    dist.monitored_barrier()
    dist.barrier(async_op=True).wait()
