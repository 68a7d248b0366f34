# SPDX-License-Identifier: Apache-2.0
"""What stands on torch.distributed, unmodified: DDP, FSDP2, DTensor, ZeRO, checkpoints.

Each is compared with the same model on one process, which sees the batches of all ranks.
"""

import copy
import os
import tempfile

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.algorithms.join import Join
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel
from world import begin

RANK, SIZE = begin()


def make_model():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 4))


def batch(rank, step=0):
    generator = torch.Generator().manual_seed(100 * rank + step)
    return torch.randn(4, 8, generator=generator)


def train_alone(steps=3, lr=0.1):
    """The model after some steps with the batches of all ranks."""
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    for step in range(steps):
        optimizer.zero_grad()
        sum(model(batch(r, step)).square().mean() for r in range(SIZE)).div(SIZE).backward()
        optimizer.step()
    return model


def assert_same(model, reference, **tolerance):
    for p, q in zip(model.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(p.detach(), q.detach(), **tolerance)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"gradient_as_bucket_view": True},
        {"find_unused_parameters": True},
        {"static_graph": True},
        {"bucket_cap_mb": 0.0005},
    ],
    ids=["plain", "views", "unused", "static", "small"],
)
def test_ddp(options):
    model = DistributedDataParallel(make_model(), **options)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        optimizer.zero_grad()
        model(batch(RANK, step)).square().mean().backward()
        optimizer.step()
    assert_same(model.module, train_alone())


def test_ddp_with_parameters_that_are_not_used():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(8, 4), nn.Linear(8, 4)

        def forward(self, x, use_b):
            return self.b(x) if use_b else self.a(x)

    model = DistributedDataParallel(Two(), find_unused_parameters=True)
    for step in range(4):
        model.zero_grad()
        model(batch(RANK), step % 2 == 1).sum().backward()
    assert model.module.b.weight.grad is not None


def test_ddp_no_sync():
    model = DistributedDataParallel(make_model())
    with model.no_sync():
        model(batch(RANK, 0)).square().mean().backward()
    model(batch(RANK, 1)).square().mean().backward()
    reference = make_model()
    total = sum(reference(batch(r, s)).square().mean() for r in range(SIZE) for s in (0, 1))
    (total / SIZE).backward()
    for p, q in zip(model.module.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(p.grad, q.grad)


def test_ddp_join_with_different_numbers_of_batches():
    model = DistributedDataParallel(make_model())
    steps = 0
    with model.join():
        for step in range(2 + RANK):
            model.zero_grad()
            model(batch(RANK, step)).square().mean().backward()
            steps += 1
    assert steps == 2 + RANK
    with Join([model]):
        for step in range(1 + RANK):
            model(batch(RANK, step)).square().mean().backward()


@pytest.mark.parametrize("hook", ["allreduce", "fp16", "powersgd", "own"])
def test_ddp_hooks(hook):
    def own(state, bucket):
        work = dist.all_reduce(bucket.buffer(), async_op=True)
        return work.get_future().then(lambda future: future.value()[0] / SIZE)

    model = DistributedDataParallel(make_model())
    if hook == "powersgd":
        state = powerSGD_hook.PowerSGDState(
            None, start_powerSGD_iter=2, matrix_approximation_rank=4
        )
        model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    else:
        hooks = {
            "allreduce": default_hooks.allreduce_hook,
            "fp16": default_hooks.fp16_compress_hook,
            "own": own,
        }
        model.register_comm_hook(None, hooks[hook])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        optimizer.zero_grad()
        model(batch(RANK, step)).square().mean().backward()
        optimizer.step()
    loose = {"rtol": 0.1, "atol": 0.02}
    assert_same(model.module, train_alone(), **({} if hook in ("allreduce", "own") else loose))


def test_fsdp2():
    mesh = init_device_mesh("cpu", (SIZE,))
    model = make_model()
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        optimizer.zero_grad()
        model(batch(RANK, step)).square().mean().backward()
        optimizer.step()
    for p, q in zip(model.parameters(), train_alone().parameters(), strict=True):
        torch.testing.assert_close(p.full_tensor().detach(), q.detach())


def test_dtensor():
    mesh = init_device_mesh("cpu", (SIZE,))
    whole = torch.arange(SIZE * 6.0).reshape(SIZE * 2, 3)
    sharded = distribute_tensor(whole, mesh, [Shard(0)])
    assert torch.equal(sharded.to_local(), whole[2 * RANK : 2 * RANK + 2])
    assert torch.equal(sharded.redistribute(mesh, [Replicate()]).to_local(), whole)
    product = sharded @ distribute_tensor(torch.eye(3), mesh, [Replicate()])
    assert torch.equal(product.full_tensor(), whole)
    torch.testing.assert_close(sharded.sum().full_tensor(), whole.sum())
    columns = sharded.redistribute(mesh, [Shard(1)])
    assert torch.equal(columns.full_tensor(), whole)
    partial = DTensor.from_local(torch.ones(3), mesh, [dist.tensor.Partial()])
    assert torch.equal(partial.full_tensor(), torch.full((3,), float(SIZE)))


@pytest.mark.skipif(SIZE != 4, reason="a mesh of two by two")
def test_mesh_of_two_dimensions():
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    for name in ("dp", "tp"):
        tensor = torch.tensor([float(RANK)])
        dist.all_reduce(tensor, group=mesh.get_group(name))
        peers = [RANK, RANK ^ 2] if name == "dp" else [RANK, RANK ^ 1]
        assert tensor.item() == sum(peers)


def test_zero_redundancy_optimizer():
    model = DistributedDataParallel(make_model())
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=0.1)
    for step in range(3):
        optimizer.zero_grad()
        model(batch(RANK, step)).square().mean().backward()
        optimizer.step()
    assert_same(model.module, train_alone())
    optimizer.consolidate_state_dict(0)


def test_checkpoint():
    path = [tempfile.mkdtemp() if RANK == 0 else None]
    dist.broadcast_object_list(path, 0)
    mesh = init_device_mesh("cpu", (SIZE,))
    model = fully_shard(make_model(), mesh=mesh)
    state = {"model": model.state_dict(), "step": 5}
    checkpoint.save(state, checkpoint_id=os.path.join(path[0], "one"))
    other = fully_shard(nn.Sequential(*copy.deepcopy(list(make_model()))), mesh=mesh)
    with torch.no_grad():
        for p in other.parameters():
            p.zero_()
    loaded = {"model": other.state_dict(), "step": 0}
    checkpoint.load(loaded, checkpoint_id=os.path.join(path[0], "one"))
    other.load_state_dict(loaded["model"])
    assert loaded["step"] == 5
    for p, q in zip(other.parameters(), make_model().parameters(), strict=True):
        torch.testing.assert_close(p.full_tensor().detach(), q.detach())


def test_sync_batch_norm():
    layer = nn.BatchNorm1d(8)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 8), layer))
    model(batch(RANK)).sum().backward()
    total = model.module[1].running_mean.clone()
    dist.broadcast(total, 0)
    assert total.shape == (8,)
