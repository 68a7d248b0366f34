# SPDX-License-Identifier: Apache-2.0
"""torch.compile: compiled models train as others do, and our calls end a graph without a word."""

import copy
import warnings

import horovod.torch as hvd
import pytest
import torch
import torch.nn.functional as F
from torch import nn

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
BACKEND = "aot_eager"  # graphs and their gradients, without waiting for a C++ compiler


def make_model():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))


def batch(step):
    generator = torch.Generator().manual_seed(10 * step + RANK)
    return (
        torch.randn(4, 6, generator=generator),
        torch.randint(0, 3, (4,), generator=generator),
    )


def train(model, optimizer, loss_of, steps=4):
    for step in range(steps):
        x, y = batch(step)
        optimizer.zero_grad()
        loss_of(x, y).backward()
        optimizer.step()
    return [p.detach().clone() for p in model.parameters()]


def wrap(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return hvd.DistributedOptimizer(optimizer, model.named_parameters())


def same(actual, expected):
    for a, e in zip(actual, expected, strict=True):
        torch.testing.assert_close(a, e)
        rows = hvd.allgather(a.reshape(1, -1))
        assert all(torch.equal(row, rows[0]) for row in rows)


@pytest.fixture(autouse=True)
def quietly():
    """Whatever is compiled here gives no warning."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    texts = [str(w.message) for w in caught]
    assert not [text for text in texts if "horovod" in text or "ynamo" in text]


def test_compiled_model():
    model = make_model()
    expected = train(
        *(lambda m: (m, wrap(m), lambda x, y: F.cross_entropy(m(x), y)))(copy.deepcopy(model))
    )
    compiled = torch.compile(model, backend=BACKEND, fullgraph=True)
    actual = train(model, wrap(model), lambda x, y: F.cross_entropy(compiled(x), y))
    same(actual, expected)


def test_compiled_step():
    """The whole step in one function: backward, hooks and optimizer in its midst."""
    model, other = make_model(), make_model()
    expected = train(other, wrap(other), lambda x, y: F.cross_entropy(other(x), y))
    optimizer = wrap(model)

    @torch.compile(backend=BACKEND)
    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss * 1.0

    for i in range(4):
        step(*batch(i))
    same([p.detach() for p in model.parameters()], expected)


OPS = {
    "allreduce": lambda x: hvd.allreduce(x * 2, name="c.ar", op=hvd.Sum) + 1,
    "allreduce_": lambda x: hvd.allreduce_(x * 2, name="c.ar_", op=hvd.Sum) + 1,
    "async": lambda x: hvd.synchronize(hvd.allreduce_async(x * 2, name="c.as")) + 1,
    "grouped": lambda x: hvd.grouped_allreduce([x, x * 2], name="c.gr")[1] + 1,
    "allgather": lambda x: hvd.allgather(x * 2, name="c.ag") + 1,
    "broadcast": lambda x: hvd.broadcast(x * 2, 0, name="c.bc") + 1,
    "alltoall": lambda x: hvd.alltoall(x * 2, name="c.aa") + 1,
    "reducescatter": lambda x: hvd.reducescatter(x * 2, name="c.rs") + 1,
    "size": lambda x: x * hvd.size() + hvd.rank(),
}


@pytest.mark.parametrize("name", OPS)
def test_operations(name):
    compiled = torch.compile(OPS[name], backend=BACKEND)
    for step in range(2):
        x = torch.arange(12.0) + RANK + step
        assert torch.equal(compiled(x), OPS[name](x))
    reasons = torch._dynamo.utils.counters["graph_break"]
    assert all("torch.compiler.disable" in reason for reason in reasons), list(reasons)


def test_gradient_through_an_operation():
    def function(x):
        return (hvd.allreduce(x * 3, name="c.grad", op=hvd.Sum) * 2).sum()

    x = torch.full((5,), RANK + 1.0, requires_grad=True)
    torch.compile(function, backend=BACKEND)(x).backward()
    assert torch.equal(x.grad, torch.full((5,), 6.0 * SIZE))
