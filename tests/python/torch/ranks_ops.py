# SPDX-License-Identifier: Apache-2.0
"""Collectives: values, dtypes, forms, gradients. Every rank runs this file."""

import itertools

import horovod.torch as hvd
import pytest
import torch

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()

FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
REDUCED = [torch.uint8, torch.int8, torch.int32, torch.int64, *FLOATS]
MOVED = [*REDUCED, torch.int16, torch.bool]
DIMS = [1, 2, 3]


def filled(dtype, dim, rank=RANK, length=5):
    """Small whole numbers, so that sums are exact in every dtype."""
    generator = torch.Generator().manual_seed(1000 * dim + rank)
    return torch.randint(0, 4, [length] * dim, generator=generator).to(dtype)


def everyone(dtype, dim, length=5):
    return torch.stack([filled(dtype, dim, rank, length) for rank in range(SIZE)])


def same(a, b):
    assert a.dtype == b.dtype and a.shape == b.shape
    assert torch.equal(a, b), f"{a} != {b}"


# ---- allreduce ----


@pytest.mark.parametrize("dtype", REDUCED, ids=str)
@pytest.mark.parametrize("dim", DIMS)
def test_allreduce_sum(dtype, dim):
    tensor = filled(dtype, dim)
    before = tensor.clone()
    expected = everyone(torch.float64, dim).sum(0).to(dtype)
    same(hvd.allreduce(tensor, op=hvd.Sum, name=f"sum.{dtype}.{dim}"), expected)
    same(tensor, before)
    same(hvd.allreduce(tensor, average=False), expected)
    same(hvd.synchronize(hvd.allreduce_async(tensor, op=hvd.Sum)), expected)


@pytest.mark.parametrize("dtype", REDUCED, ids=str)
def test_allreduce_inplace(dtype):
    tensor = filled(dtype, 2)
    expected = everyone(torch.float64, 2).sum(0).to(dtype)
    assert hvd.allreduce_(tensor, op=hvd.Sum) is tensor
    same(tensor, expected)
    tensor = filled(dtype, 2)
    assert hvd.synchronize(hvd.allreduce_async_(tensor, None, "in.place", hvd.Sum)) is tensor
    same(tensor, expected)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_allreduce_average_is_the_default(dtype):
    expected = everyone(torch.float64, 2).mean(0).to(dtype)
    torch.testing.assert_close(hvd.allreduce(filled(dtype, 2)), expected)


def test_allreduce_integer_average_truncates():
    tensor = torch.tensor([-1 - RANK, 3 + RANK], dtype=torch.int32)
    total = torch.tensor(
        [sum(-1 - r for r in range(SIZE)), sum(3 + r for r in range(SIZE))], dtype=torch.float64
    )
    same(hvd.allreduce(tensor), (total * (1.0 / SIZE)).trunc().to(torch.int32))


@pytest.mark.parametrize("op", [hvd.Min, hvd.Max, hvd.Product], ids=["min", "max", "product"])
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.float32, torch.float64], ids=str)
def test_allreduce_other_ops(op, dtype):
    values = everyone(dtype, 2)
    expected = {
        hvd.Min: lambda: values.amin(0),
        hvd.Max: lambda: values.amax(0),
        hvd.Product: lambda: values.prod(0).to(dtype),
    }[op]()
    same(hvd.allreduce(filled(dtype, 2), op=op), expected)


def test_allreduce_scales():
    tensor = torch.tensor([3, 5, -3], dtype=torch.int32)
    scaled = (tensor.double() * 0.5).trunc()
    same(
        hvd.allreduce(tensor, op=hvd.Sum, prescale_factor=0.5),
        (scaled * SIZE).to(torch.int32),
    )
    x = torch.full((4,), 2.0)
    same(
        hvd.allreduce(x, op=hvd.Sum, prescale_factor=0.5, postscale_factor=3.0),
        torch.full((4,), 3.0 * SIZE),
    )


@pytest.mark.parametrize("compression", [hvd.Compression.fp16, hvd.Compression.bf16])
def test_allreduce_compressed(compression):
    x = torch.full((3, 3), float(RANK))
    result = hvd.allreduce(x, compression=compression, op=hvd.Sum)
    same(result, torch.full((3, 3), float(sum(range(SIZE)))))
    ints = torch.full((3,), RANK)
    same(hvd.allreduce(ints, compression=compression, op=hvd.Sum), ints * 0 + sum(range(SIZE)))


def test_allreduce_large():
    x = torch.full((3_000_001,), float(RANK + 1))
    assert hvd.allreduce(x, op=hvd.Sum).eq(SIZE * (SIZE + 1) / 2).all()
    hvd.allreduce_(x, op=hvd.Sum)
    assert x.eq(SIZE * (SIZE + 1) / 2).all()


def test_allreduce_many_async():
    tensors = [torch.full((i + 1,), float(RANK + i)) for i in range(200)]
    handles = [hvd.allreduce_async(t, op=hvd.Sum, name=f"many.{i}") for i, t in enumerate(tensors)]
    for i, handle in reversed(list(enumerate(handles))):
        expected = sum(r + i for r in range(SIZE))
        assert hvd.synchronize(handle).eq(expected).all()


def test_odd_layouts():
    total = SIZE * (SIZE + 1) / 2
    base = torch.full((4, 6), float(RANK + 1))
    for view in (base.t(), base[:, ::2], base[1:, 1], base.expand(2, 4, 6), base[2:]):
        same(hvd.allreduce(view, op=hvd.Sum), torch.full(view.shape, total))
    view = base[:, ::2]
    assert hvd.allreduce_(view, op=hvd.Sum) is view
    assert base[:, ::2].eq(total).all() and base[:, 1::2].eq(RANK + 1).all()
    hvd.synchronize(hvd.allreduce_async_(base.t(), op=hvd.Max))
    assert base[:, 1::2].eq(SIZE).all()
    same(hvd.allreduce(torch.tensor(float(RANK)), op=hvd.Sum), torch.tensor(sum(range(SIZE)) * 1.0))
    same(hvd.allreduce(torch.empty(0), op=hvd.Sum), torch.empty(0))
    same(hvd.allreduce(torch.empty(3, 0, 2), op=hvd.Sum), torch.empty(3, 0, 2))
    last = torch.full((2, 3, 4, 5), float(RANK)).to(memory_format=torch.channels_last)
    same(hvd.allreduce(last, op=hvd.Max), torch.full((2, 3, 4, 5), SIZE - 1.0))


def test_same_name_with_another_shape():
    for shape, dtype in (([3], torch.float32), ([4, 2], torch.float32), ([3], torch.int64)):
        x = torch.ones(shape, dtype=dtype)
        for _ in range(3):
            same(hvd.allreduce(x, op=hvd.Sum, name="changing"), x * SIZE)


# ---- groups ----


@pytest.mark.parametrize("dtype", REDUCED, ids=str)
def test_grouped_allreduce(dtype):
    tensors = [filled(dtype, dim) for dim in DIMS]
    expected = [everyone(torch.float64, dim).sum(0).to(dtype) for dim in DIMS]
    result = hvd.grouped_allreduce(tensors, op=hvd.Sum, name=f"group.{dtype}")
    assert isinstance(result, list)
    result2 = hvd.synchronize(hvd.grouped_allreduce_async(tensors, op=hvd.Sum))
    assert isinstance(result2, tuple)
    for a, b, e in zip(result, result2, expected, strict=True):
        same(a, e)
        same(b, e)
    result = hvd.grouped_allreduce_(tensors, op=hvd.Sum)
    assert isinstance(result, tuple)
    for a, t, e in zip(result, tensors, expected, strict=True):
        assert a is t
        same(t, e)


def test_grouped_allreduce_mixed():
    tensors = [torch.ones(3), torch.ones(2, dtype=torch.int64), torch.ones(4, 4)[:, 1]]
    handle = hvd.grouped_allreduce_async_(tensors, op=hvd.Sum, name="mixed")
    for tensor in hvd.synchronize(handle):
        assert tensor.eq(SIZE).all()
    assert tensors[2].eq(SIZE).all()


# ---- allgather ----


@pytest.mark.parametrize("dtype", MOVED, ids=str)
@pytest.mark.parametrize("dim", DIMS)
def test_allgather(dtype, dim):
    tensor = filled(dtype, dim)
    expected = everyone(dtype, dim).reshape([5 * SIZE] + [5] * (dim - 1))
    same(hvd.allgather(tensor, name=f"gather.{dtype}.{dim}"), expected)
    same(hvd.synchronize(hvd.allgather_async(tensor)), expected)


def test_allgather_uneven():
    rows = [(3 * r + 2) % 5 for r in range(SIZE)]
    tensor = torch.full((rows[RANK], 4), RANK)
    expected = torch.cat([torch.full((n, 4), r) for r, n in enumerate(rows)])
    for _ in range(4):
        same(hvd.allgather(tensor, name="uneven"), expected)
    same(hvd.allgather(torch.empty(0, 3)), torch.empty(0, 3))
    only = torch.ones(2, 3) if RANK == SIZE - 1 else torch.empty(0, 3)
    same(hvd.allgather(only), torch.ones(2, 3))
    same(hvd.allgather(torch.full((2, 6), RANK).t()).sum(), torch.tensor(12 * sum(range(SIZE))))


def test_grouped_allgather():
    tensors = [torch.full((RANK + 1, 2), RANK), torch.full((2,), float(RANK))]
    result = hvd.grouped_allgather(tensors, name="grouped.gather")
    assert isinstance(result, tuple)
    same(result[0], torch.cat([torch.full((r + 1, 2), r) for r in range(SIZE)]))
    same(result[1], torch.cat([torch.full((2,), float(r)) for r in range(SIZE)]))
    result = hvd.synchronize(hvd.grouped_allgather_async([tensors[1]]))
    assert isinstance(result, tuple) and len(result) == 1


def test_result_outlives_its_views():
    part = hvd.allgather(torch.arange(6.0))[2:4]
    hvd.allgather(torch.zeros(1000))
    same(part, torch.tensor([2.0, 3.0]))


# ---- broadcast ----


@pytest.mark.parametrize("dtype", MOVED, ids=str)
def test_broadcast(dtype):
    for root in range(SIZE):
        tensor, expected = filled(dtype, 2), filled(dtype, 2, root)
        same(hvd.broadcast(tensor, root, name=f"from.{root}.{dtype}"), expected)
        same(tensor, filled(dtype, 2))
        same(hvd.synchronize(hvd.broadcast_async(tensor, root)), expected)
        assert hvd.broadcast_(tensor, root) is tensor
        same(tensor, expected)
        tensor = filled(dtype, 2)
        assert hvd.synchronize(hvd.broadcast_async_(tensor, root)) is tensor
        same(tensor, expected)


def test_broadcast_strided_in_place():
    base = torch.full((4, 4), float(RANK))
    hvd.broadcast_(base[:, 1], SIZE - 1)
    assert base[:, 1].eq(SIZE - 1).all() and base[:, 0].eq(RANK).all()


# ---- alltoall ----


@pytest.mark.parametrize("dtype", MOVED, ids=str)
def test_alltoall(dtype):
    splits = [(RANK + to) % 3 for to in range(SIZE)]
    rows = torch.cat([torch.full((n, 2), to) for to, n in enumerate(splits)]).to(dtype)
    output, received = hvd.alltoall(rows, splits, name=f"to.all.{dtype}")
    assert received.dtype == torch.int32
    assert received.tolist() == [(source + RANK) % 3 for source in range(SIZE)]
    same(output, torch.full((sum(received.tolist()), 2), RANK).to(dtype))
    output, received2 = hvd.alltoall(rows, torch.tensor(splits, dtype=torch.int32))
    same(received2, received)


def test_alltoall_equal():
    tensor = torch.arange(2 * SIZE) + 100 * RANK
    expected = torch.cat([torch.arange(2 * RANK, 2 * RANK + 2) + 100 * r for r in range(SIZE)])
    same(hvd.alltoall(tensor), expected)
    output, received = hvd.synchronize(hvd.alltoall_async(tensor))
    same(output, expected)
    assert received.tolist() == [2] * SIZE
    output, received = hvd.alltoall(tensor, splits=[])
    same(output, expected)


def test_alltoall_leaves_rows_behind():
    tensor = torch.full((3 * SIZE, 2), float(RANK))
    output, received = hvd.alltoall(tensor, splits=[1] * SIZE)
    same(output, torch.stack([torch.full((2,), float(r)) for r in range(SIZE)]))
    output, received = hvd.alltoall(torch.empty(0, 2), splits=[0] * SIZE)
    assert output.shape == (0, 2) and received.tolist() == [0] * SIZE


# ---- reducescatter ----


def share(rows):
    counts = [rows // SIZE + (r < rows % SIZE) for r in range(SIZE)]
    start = sum(counts[:RANK])
    return start, start + counts[RANK]


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, *FLOATS], ids=str)
@pytest.mark.parametrize("rows", [1, 7, 8])
def test_reducescatter(dtype, rows):
    tensor = filled(dtype, 2, length=rows)
    total = everyone(torch.float64, 2, rows).sum(0)
    start, end = share(rows)
    same(hvd.reducescatter(tensor, op=hvd.Sum), total[start:end].to(dtype))
    result = hvd.synchronize(hvd.reducescatter_async(tensor, op=hvd.Sum, name=f"rs.{dtype}.{rows}"))
    same(result, total[start:end].to(dtype))
    if dtype.is_floating_point:
        average = hvd.reducescatter(tensor)
        torch.testing.assert_close(average, (total / SIZE)[start:end].to(dtype))


def test_reducescatter_options():
    x = torch.ones(2 * SIZE, 3)
    result = hvd.reducescatter(x, op=hvd.Sum, prescale_factor=2.0, postscale_factor=0.5)
    same(result, torch.full((2, 3), float(SIZE)))
    result = hvd.reducescatter(x, op=hvd.Sum, compression=hvd.Compression.fp16)
    same(result, torch.full((2, 3), float(SIZE)))
    results = hvd.grouped_reducescatter([x, x[:, 0]], op=hvd.Sum, name="grouped.rs")
    assert isinstance(results, list)
    same(results[0], torch.full((2, 3), float(SIZE)))
    same(results[1], torch.full((2,), float(SIZE)))
    results = hvd.synchronize(hvd.grouped_reducescatter_async([x], op=hvd.Average))
    assert isinstance(results, tuple)
    same(results[0], torch.ones(2, 3))


# ---- Adasum ----


@pytest.mark.skipif(SIZE & (SIZE - 1) != 0, reason="Adasum needs a power of two")
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64], ids=str)
def test_adasum(dtype):
    parallel = torch.arange(1, 9).to(dtype)
    torch.testing.assert_close(hvd.allreduce(parallel, op=hvd.Adasum), parallel)
    orthogonal = torch.zeros(SIZE + 4, dtype=dtype)
    orthogonal[RANK] = 2.0
    expected = torch.zeros(SIZE + 4, dtype=dtype)
    expected[:SIZE] = 2.0
    torch.testing.assert_close(hvd.allreduce(orthogonal, op=hvd.Adasum), expected)


# ---- sparse ----


def test_sparse_allreduce():
    rows = SIZE + 6
    indices = torch.tensor([[RANK, RANK, 5], [0, 0, 1]])
    tensor = torch.sparse_coo_tensor(indices, torch.tensor([1.0, 2.0, 4.0]), (rows, 2))
    for op, divisor in ((hvd.Sum, 1), (hvd.Average, SIZE)):
        result = hvd.sparse_allreduce_async(tensor, name=f"sparse.{op}", op=op)()
        expected = torch.zeros(rows, 2)
        for r in range(SIZE):
            expected[r, 0] += 3.0
            expected[5, 1] += 4.0
        assert result.is_sparse
        torch.testing.assert_close(result.to_dense(), expected / divisor)
    empty = torch.sparse_coo_tensor(torch.empty(2, 0, dtype=torch.long), torch.empty(0), (rows, 2))
    assert hvd.sparse_allreduce_async(empty, name="sparse.empty", op=hvd.Sum)()._nnz() == 0


# ---- gradients ----


def leaf(rows, dim=2):
    return (filled(torch.float32, dim, length=rows) + 1).requires_grad_()


@pytest.mark.parametrize("op", [hvd.Sum, hvd.Average])
def test_allreduce_gradient(op):
    x = leaf(4)
    y = hvd.allreduce(x, op=op, prescale_factor=0.5)
    y.backward(torch.full_like(y, RANK + 1.0))
    total = sum(range(1, SIZE + 1))
    expected = 0.5 * (total if op == hvd.Sum else total / SIZE)
    torch.testing.assert_close(x.grad, torch.full_like(x, expected))
    x = leaf(4)
    hvd.allreduce(x, op=op).sum().backward()  # the incoming gradient is an expanded scalar
    torch.testing.assert_close(x.grad, torch.full_like(x, SIZE if op == hvd.Sum else 1.0))


def test_grouped_allreduce_gradient():
    xs = [leaf(3), leaf(4)]
    ys = hvd.grouped_allreduce(xs, op=hvd.Sum)
    (ys[0].sum() + 2 * ys[1].sum()).backward()
    torch.testing.assert_close(xs[0].grad, torch.full_like(xs[0], SIZE))
    torch.testing.assert_close(xs[1].grad, torch.full_like(xs[1], 2.0 * SIZE))


def test_allgather_gradient():
    rows = [r + 1 for r in range(SIZE)]
    x = torch.ones(rows[RANK], 3, requires_grad=True)
    y = hvd.allgather(x)
    weights = torch.arange(float(len(y))).unsqueeze(1).expand(-1, 3)
    y.backward(weights * (RANK + 1))
    factor = sum(r + 1 for r in range(SIZE)) / SIZE
    start = sum(rows[:RANK])
    torch.testing.assert_close(x.grad, weights[start : start + rows[RANK]] * factor)
    xs = [torch.ones(rows[RANK], 3, requires_grad=True), torch.ones(2, requires_grad=True)]
    a, b = hvd.grouped_allgather(xs)
    (a.sum() + 3 * b.sum()).backward()
    torch.testing.assert_close(xs[0].grad, torch.ones(rows[RANK], 3))
    torch.testing.assert_close(xs[1].grad, torch.full((2,), 3.0))


def test_broadcast_gradient():
    x = leaf(3)
    y = hvd.broadcast(x, SIZE - 1)
    y.backward(torch.full_like(y, RANK + 1.0))
    expected = sum(range(1, SIZE + 1)) / SIZE if RANK == SIZE - 1 else 0.0
    torch.testing.assert_close(x.grad, torch.full_like(x, expected))


def test_alltoall_gradient():
    splits = [r + 1 for r in range(SIZE)]
    x = torch.ones(sum(splits), 2, requires_grad=True)
    y, received = hvd.alltoall(x, splits)
    assert not received.requires_grad
    y.backward(torch.full_like(y, RANK + 1.0))
    expected = torch.cat([torch.full((n, 2), to + 1.0) for to, n in enumerate(splits)])
    torch.testing.assert_close(x.grad, expected)
    x = torch.ones(2 * SIZE, 2, requires_grad=True)
    hvd.alltoall(x, [1] * SIZE)[0].sum().backward()
    torch.testing.assert_close(x.grad[:SIZE], torch.ones(SIZE, 2))
    torch.testing.assert_close(x.grad[SIZE:], torch.zeros(SIZE, 2))


@pytest.mark.parametrize("to", sorted({0, SIZE - 1}))
def test_alltoall_gradient_where_a_rank_received_nothing(to):
    """Everybody sends all to one rank: the others' gradients are empty, with odd strides."""
    splits = [2 if r == to else 0 for r in range(SIZE)]
    x = torch.ones(2, 3, requires_grad=True)
    y, received = hvd.alltoall(x, splits)
    assert y.shape == (2 * SIZE if to == RANK else 0, 3)
    assert received.tolist() == ([2] * SIZE if to == RANK else [0] * SIZE)
    (y * 5).sum().backward()
    torch.testing.assert_close(x.grad, torch.full((2, 3), 5.0))
    x.grad = None
    y, _ = hvd.alltoall(x, splits)
    y.sum().backward()  # the gradient is one element, expanded
    torch.testing.assert_close(x.grad, torch.ones(2, 3))


def test_tensors_without_elements_have_no_strides():
    odd = torch.ones(1).expand(0, 3)
    assert odd.stride() == (0, 0) or odd.stride() == (1, 0)
    same(hvd.allgather(odd), torch.empty(0, 3))
    same(hvd.allreduce(odd, op=hvd.Sum), torch.empty(0, 3))
    same(hvd.broadcast(odd, 0), torch.empty(0, 3))
    same(hvd.alltoall(odd), torch.empty(0, 3))
    same(hvd.grouped_allreduce([odd, torch.ones(2)])[0], torch.empty(0, 3))


@pytest.mark.parametrize("op", [hvd.Sum, hvd.Average])
def test_reducescatter_gradient(op):
    x = leaf(2 * SIZE + 1)
    y = hvd.reducescatter(x, op=op)
    grad = torch.full_like(y, RANK + 1.0)
    y.backward(grad)
    counts = [2 + (r < 1) for r in range(SIZE)]
    factor = SIZE if op == hvd.Sum else 1
    rows = [torch.full((n, x.shape[1]), (r + 1.0) * factor) for r, n in enumerate(counts)]
    torch.testing.assert_close(x.grad, torch.cat(rows))
    assert grad.eq(RANK + 1.0).all()
    xs = [leaf(SIZE), leaf(SIZE)]
    for y in hvd.grouped_reducescatter(xs, op=hvd.Sum):
        y.sum().backward(retain_graph=True)
    for x in xs:
        torch.testing.assert_close(x.grad, torch.full_like(x, SIZE))


def test_no_gradient_no_graph():
    x = leaf(3)
    with torch.no_grad():
        assert not hvd.allreduce(x).requires_grad
    assert hvd.allreduce(x).requires_grad
    assert not hvd.allreduce(x.detach()).requires_grad


# ---- join and barrier ----


def test_join():
    for turn in range(3):
        for step in range(RANK + 1):
            x = torch.ones(4)
            present = sum(1 for r in range(SIZE) if r >= step)
            result = hvd.allreduce(x, op=hvd.Sum, name=f"join.{turn % 2}.{step}")
            assert result.eq(present).all()
            pair = hvd.grouped_allreduce([x, x], op=hvd.Average, name=f"pair.{turn}.{step}")
            torch.testing.assert_close(pair[1], torch.full((4,), present / SIZE))
        last = hvd.join()
        assert last == SIZE - 1
        assert hvd.allgather(torch.tensor([last])).tolist() == [last] * SIZE


def test_barrier():
    pending = hvd.allreduce_async(torch.ones(1), name="pending") if RANK == 0 else None
    hvd.barrier()
    if RANK != 0:
        pending = hvd.allreduce_async(torch.ones(1), name="pending")
    same(hvd.synchronize(pending), torch.ones(1))


def test_every_form_mixed_in_flight():
    handles = []
    for i, kind in itertools.product(range(5), range(4)):
        x = torch.full((SIZE * 2,), float(RANK))
        handles.append(
            [
                lambda x, i: hvd.allreduce_async(x, op=hvd.Sum, name=f"mix.{i}"),
                lambda x, i: hvd.allgather_async(x, name=f"mix.{i}"),
                lambda x, i: hvd.broadcast_async(x, i % SIZE, name=f"mix.{i}"),
                lambda x, i: hvd.reducescatter_async(x, op=hvd.Sum, name=f"mix.{i}"),
            ][kind](x, i)
        )
    total = sum(range(SIZE))
    for at, handle in enumerate(handles):
        i, kind = divmod(at, 4)
        result = hvd.synchronize(handle)
        expected = [total, None, i % SIZE, total][kind]
        if expected is None:
            assert result.view(SIZE, -1)[:, 0].tolist() == list(range(SIZE))
        else:
            assert result.eq(expected).all()


def test_a_scale_of_zero_is_zero():
    x = torch.full((3,), RANK + 1.0)
    for factors in ({"prescale_factor": 0.0}, {"postscale_factor": 0.0}):
        same(hvd.allreduce(x, op=hvd.Sum, name="zero", **factors), torch.zeros(3))
        same(hvd.reducescatter(x.repeat(SIZE), op=hvd.Sum, **factors), torch.zeros(3))
        first, _ = hvd.grouped_allreduce([x, x], op=hvd.Average, **factors)
        same(first, torch.zeros(3))


# ---- the functions of the extension module ----


def test_names_of_the_extension():
    from horovod.torch import mpi_lib_v2 as lib

    assert hvd.mpi_ops.mpi_lib is lib and hvd.mpi_lib_v2 is lib
    x = torch.full((2, 2), RANK + 1.0)
    factory = hvd.mpi_ops._allreduce_function_factory
    function = hvd.mpi_ops._check_function(factory, x)
    assert function == "horovod_torch_allreduce_async_torch_FloatTensor"
    out = torch.zeros(2, 2)
    handle = getattr(lib, function)(x, out, 1, b"lib.sum", hvd.Sum, 1.0, 1.0, 0)
    lib.horovod_torch_wait_and_clear(handle)
    same(out, torch.full((2, 2), SIZE * (SIZE + 1) / 2))
    handle = getattr(lib, function)(x, out, SIZE, b"lib.mean", hvd.Sum, 1.0, 1.0, 0)
    while not lib.horovod_torch_poll(handle):
        pass
    lib.horovod_torch_wait_and_clear(handle)
    same(out, torch.full((2, 2), (SIZE + 1) / 2))
    gathered = torch.zeros(0)
    handle = lib.horovod_torch_allgather_async_torch_FloatTensor(x, gathered, b"lib.gather", 0)
    lib.horovod_torch_wait_and_clear(handle)
    same(gathered, torch.cat([torch.full((2, 2), r + 1.0) for r in range(SIZE)]))
    sent = torch.full((SIZE,), RANK, dtype=torch.int64)
    got, splits = torch.zeros(0, dtype=torch.int64), torch.zeros(0, dtype=torch.int32)
    handle = lib.horovod_torch_alltoall_async_torch_LongTensor(
        sent, torch.ones(SIZE, dtype=torch.int32), got, splits, b"lib.to.all", 0
    )
    lib.horovod_torch_wait_and_clear(handle)
    assert got.tolist() == list(range(SIZE)) and splits.tolist() == [1] * SIZE
    lib.horovod_torch_wait_and_clear(lib.horovod_torch_barrier(0))
    last = torch.tensor(-1, dtype=torch.int)
    lib.horovod_torch_wait_and_clear(lib.horovod_torch_join(last, -1))
    assert 0 <= last.item() < SIZE
    with pytest.raises(ValueError, match="torch.ComplexFloatTensor is not supported"):
        hvd.mpi_ops._check_function(factory, torch.ones(1, dtype=torch.complex64))
    with pytest.raises(ValueError, match="required to be contiguous"):
        hvd.mpi_ops._check_function(factory, torch.ones(2, 3).t())
