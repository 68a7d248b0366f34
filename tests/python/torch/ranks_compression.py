# SPDX-License-Identifier: Apache-2.0
"""Compression.fp16 and .bf16: float32 is converted by the core, and only where it leaves memory
that ranks share; everything else is cast."""

import os

import horovod.torch as hvd
import pytest
import torch
import torch.nn.functional as F
from torch import nn

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
HAS_NETWORK = "HOROVOD_SHM_DISABLE" in os.environ and SIZE > 1
COMPRESSIONS = [hvd.Compression.fp16, hvd.Compression.bf16]
# Each number is rounded once, and a sum once per hop.
TOLERANCE = {hvd.Compression.fp16: (SIZE + 1) / 2048, hvd.Compression.bf16: (SIZE + 1) / 256}


def values(rank, count=10007):
    return torch.randn(count, generator=torch.Generator().manual_seed(rank))


def same_everywhere(tensor):
    rows = hvd.allgather(tensor.detach().reshape(1, -1))
    for row in rows:
        assert torch.equal(row, rows[0])


def check(result, compression, op, exact=None):
    everything = torch.stack([values(rank) for rank in range(SIZE)])
    expected = everything.sum(0) if op == hvd.Sum else everything.mean(0)
    scale = everything.abs().sum(0) if op == hvd.Sum else everything.abs().mean(0)
    assert result.dtype == torch.float32
    assert torch.all((result - expected).abs() <= scale * TOLERANCE[compression])
    same_everywhere(result)
    if exact is not None and not HAS_NETWORK:
        assert torch.equal(result, exact)  # nothing was converted
    elif SIZE > 1:
        assert not torch.equal(result, expected)


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("op", [hvd.Sum, hvd.Average])
def test_values(compression, op):
    mine = values(RANK)
    plain = hvd.allreduce(mine, op=op)
    check(hvd.allreduce(mine, op=op, compression=compression), compression, op, plain)
    assert torch.equal(mine, values(RANK))
    for result in hvd.grouped_allreduce([mine, mine], op=op, compression=compression):
        check(result, compression, op, plain)


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_other_types_are_cast(compression):
    mine = values(RANK)
    double = hvd.allreduce(mine.double(), op=hvd.Sum, compression=compression)
    assert double.dtype == torch.float64
    tensors = [mine, mine.double(), torch.arange(5) + RANK]
    single, grouped, whole = hvd.grouped_allreduce(tensors, op=hvd.Sum, compression=compression)
    check(single, compression, hvd.Sum, hvd.allreduce(mine, op=hvd.Sum))
    assert torch.equal(grouped, double)
    check(double.float(), compression, hvd.Sum)
    assert torch.equal(whole, torch.arange(5) * SIZE + sum(range(SIZE)))
    largest = hvd.allreduce(mine, op=hvd.Max, compression=compression)
    assert torch.equal(largest, largest.to(compression.dtype).float())


def test_large_numbers():
    """float16 has no such numbers: they travel as they are."""
    mine = values(RANK) * 1e20
    expected = hvd.allreduce(mine, op=hvd.Sum)
    result = hvd.allreduce(mine, op=hvd.Sum, compression=hvd.Compression.fp16)
    assert torch.allclose(result, expected, rtol=1e-5, atol=1e15)


def test_compress_and_decompress():
    """Programs call them, too."""
    for compression in COMPRESSIONS:
        small, ctx = compression.compress(values(RANK))
        assert small.dtype == compression.dtype
        assert compression.decompress(small, ctx).dtype == torch.float32


def test_derived_compressor():
    class Counting(hvd.Compression.bf16):
        calls = 0

        @classmethod
        def compress(cls, tensor):
            cls.calls += 1
            return super().compress(tensor)

    hvd.allreduce(values(RANK), compression=Counting)
    hvd.grouped_allreduce([values(RANK)], compression=Counting)
    assert Counting.calls == 2


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_gradient_of_allreduce(compression):
    x = values(RANK).requires_grad_()
    y = values(RANK).requires_grad_()
    hvd.allreduce(x, op=hvd.Sum, compression=compression).sum().backward()
    assert torch.equal(x.grad, torch.full_like(x, SIZE))
    hvd.grouped_allreduce([y, y], op=hvd.Sum, compression=compression)[0].sum().backward()
    assert torch.equal(y.grad, torch.full_like(y, SIZE))


def sent_bytes():
    return sum(link["sent_bytes"] for link in hvd.metrics()["links"])


@pytest.mark.skipif(not HAS_NETWORK, reason="nothing travels")
@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_bytes(compression):
    mine = values(RANK, 300_000)
    start = sent_bytes()
    hvd.allreduce(mine, name="bytes")
    plain = sent_bytes() - start
    hvd.allreduce(mine, name="bytes.small", compression=compression)
    assert plain > 0 and (sent_bytes() - start - plain) * 2 == plain


# ---- training ----


def make_model(seed=7):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(16, 40), nn.ReLU(), nn.Linear(40, 3))


def make_batch(step, dtype=torch.float32):
    generator = torch.Generator().manual_seed(step)
    x = torch.randn(12, 16, generator=generator).to(dtype)
    y = torch.randint(0, 3, (12,), generator=generator)
    mine = slice(RANK * (12 // SIZE), (RANK + 1) * (12 // SIZE))
    return (x[mine], y[mine]), (x, y)


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("groups", [None, 2])
@pytest.mark.parametrize("predivide", [1.0, 4.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_training(compression, groups, predivide, dtype):
    """Like one process with the whole batch."""
    model, alone = make_model().to(dtype), make_model().to(dtype)
    reference = torch.optim.SGD(alone.parameters(), lr=0.1, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
        named_parameters=model.named_parameters(),
        compression=compression,
        groups=groups,
        gradient_predivide_factor=predivide,
    )
    for step in range(20):  # enough for a plan
        mine, everything = make_batch(step, dtype)
        for net, opt, (x, y) in ((model, optimizer, mine), (alone, reference, everything)):
            opt.zero_grad()
            F.cross_entropy(net(x), y).backward()
            opt.step()
    is_exact = not HAS_NETWORK and dtype == torch.float32
    tolerance = 1e-5 if is_exact else 0.05
    for p, q in zip(model.parameters(), alone.parameters(), strict=True):
        assert p.grad.dtype == dtype
        assert torch.allclose(p, q, rtol=tolerance, atol=tolerance)
        same_everywhere(p)


@pytest.mark.skipif(SIZE == 1 or HAS_NETWORK, reason="there is no shared memory")
def test_gradients_stay_in_the_arena():
    model = make_model()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1),
        named_parameters=model.named_parameters(),
        compression=hvd.Compression.bf16,
    )
    x, y = make_batch(0)[0]
    F.cross_entropy(model(x), y).backward()
    for p in model.parameters():
        assert p.grad is optimizer._arena.views[p]
    optimizer.step()


@pytest.mark.skipif(SIZE == 1, reason="there is no other rank")
def test_ranks_that_differ():
    compression = hvd.Compression.bf16 if RANK == SIZE - 1 else hvd.Compression.none
    with pytest.raises(hvd.HorovodInternalError, match="Mismatched compression.*bfloat16"):
        hvd.allreduce(values(RANK), name="differ", compression=compression)
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == SIZE
