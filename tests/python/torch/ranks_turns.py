# SPDX-License-Identifier: Apache-2.0
"""Ranks that do different things between two steps: a gradient only ever meets those of its step.

Every test knows what one process would compute that sees the data of all ranks.
"""

import gc
import os
import weakref

import horovod.torch as hvd
import pytest
import torch
from optimizers import overlap_if_told
from torch import nn
from torch.utils.checkpoint import checkpoint
from trip import Trip

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()

overlap_if_told(RANK)

pytestmark = pytest.mark.skipif(SIZE < 2, reason="ranks must differ")


class Two(nn.Module):
    """Two parameters whose gradients are the inputs themselves, summed over calls."""

    def __init__(self):
        super().__init__()
        self.a = nn.Parameter(torch.zeros(4))
        self.b = nn.Parameter(torch.zeros(3, 2))

    def loss(self, a=None, b=None):
        total = 0.0
        if a is not None:
            total = total + (self.a * a).sum()
        if b is not None:
            total = total + (self.b * b).sum()
        return total


def wrap(model, lr=1.0, **options):
    options.setdefault("named_parameters", model.named_parameters())
    sgd = options.pop("optimizer", None) or torch.optim.SGD(model.parameters(), lr=lr)
    return hvd.DistributedOptimizer(sgd, **options)


def value(rank, step):
    return 1.0 + rank + 10.0 * step


def mean(step):
    return sum(value(r, step) for r in range(SIZE)) / SIZE


def check(model, a, b):
    torch.testing.assert_close(model.a.grad.to_dense(), torch.full((4,), float(a)))
    torch.testing.assert_close(model.b.grad.to_dense(), torch.full((3, 2), float(b)))


def check_weights(model, a, b):
    torch.testing.assert_close(model.a.detach(), torch.full((4,), float(a)))
    torch.testing.assert_close(model.b.detach(), torch.full((3, 2), float(b)))


# ---- any number of backwards ----


@pytest.mark.parametrize("op", [hvd.Average, hvd.Sum])
def test_an_extra_backward_on_one_rank(op):
    model = Two()
    optimizer = wrap(model, op=op)
    factor = SIZE if op == hvd.Sum else 1
    for step in range(6):
        optimizer.zero_grad()
        mine = value(RANK, step)
        model.loss(mine, mine).backward()
        if step % SIZE == RANK and step > 0:
            model.loss(b=100.0).backward()
        optimizer.step()
        extra = 100.0 / SIZE if step > 0 else 0.0
        check(model, factor * mean(step), factor * (mean(step) + extra))


@pytest.mark.parametrize("passes", [1, 2])
@pytest.mark.parametrize("compression", ["none", "fp16"])
@pytest.mark.parametrize("groups", [None, 1])
def test_batches_split_differently(passes, compression, groups):
    model = Two()
    optimizer = wrap(
        model,
        backward_passes_per_step=passes,
        compression=getattr(hvd.Compression, compression),
        groups=groups,
    )
    for step in range(4):
        optimizer.zero_grad()
        for _ in range(RANK + 1):
            model.loss(value(RANK, step) / (RANK + 1), 1.0).backward()
        optimizer.step()
        count = sum(range(1, SIZE + 1)) / SIZE
        half = {"rtol": 2e-3, "atol": 0.02} if compression == "fp16" else {}
        torch.testing.assert_close(model.a.grad, torch.full((4,), mean(step)), **half)
        torch.testing.assert_close(model.b.grad, torch.full((3, 2), count), **half)


def test_parts_of_the_network_on_some_ranks():
    model = Two()
    optimizer = wrap(model)
    for step in range(4):
        optimizer.zero_grad()
        mine = value(RANK, step)
        (model.loss(a=mine) if RANK % 2 == 0 else model.loss(b=mine)).backward()
        even = sum(value(r, step) for r in range(0, SIZE, 2)) / SIZE
        odd = sum(value(r, step) for r in range(1, SIZE, 2)) / SIZE
        check(model, even, odd)
        optimizer.step()
        check(model, even, odd)


@pytest.mark.parametrize("groups", [None, 1])
def test_clipping_where_a_rank_uses_parts_of_the_network(groups):
    """Also in the first step, when ranks know nothing of each other's parameters."""
    model = Two()
    optimizer = wrap(model, groups=groups)
    for step in range(3):
        optimizer.zero_grad()
        model.loss(value(RANK, step), 4.0 if RANK == 0 else None).backward()
        total = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        norm = (4 * mean(step) ** 2 + 6 * (4.0 / SIZE) ** 2) ** 0.5
        torch.testing.assert_close(total.item(), norm)
        optimizer.step()
        check(model, mean(step) / norm, 4.0 / SIZE / norm)


def test_tasks_with_heads_of_their_own():
    """Each task leaves the heads of the others without gradients; theirs are looked at in turn."""
    trunk = nn.Parameter(torch.zeros(3))
    heads = [nn.Parameter(torch.zeros(2)) for _ in range(3)]
    named = [("trunk", trunk), *((f"head{i}", p) for i, p in enumerate(heads))]
    sgd = torch.optim.SGD([p for _, p in named], lr=0.0)
    optimizer = hvd.DistributedOptimizer(sgd, named_parameters=named)
    for step in range(2):
        parts = []
        for task, head in enumerate(heads):
            for _, p in named:
                p.grad = None
            mine = value(RANK, step) * (task + 1)
            ((trunk * mine).sum() + (head * mine).sum()).backward()
            torch.testing.assert_close(trunk.grad, torch.full((3,), mean(step) * (task + 1)))
            torch.testing.assert_close(head.grad, torch.full((2,), mean(step) * (task + 1)))
            parts.append(trunk.grad)
        trunk.grad = parts[0] - parts[1] * 2 + parts[2]
        optimizer.step()
        torch.testing.assert_close(trunk.grad, torch.full((3,), mean(step) * 0))


def test_an_empty_batch_and_a_metric_before_step():
    model = Two()
    optimizer = wrap(model)
    for step in range(4):
        optimizer.zero_grad()
        if RANK > 0 or step % 2 == 0:
            model.loss(value(RANK, step), 1.0).backward()
        metric = hvd.allreduce(torch.tensor(float(RANK)), name="metric", op=hvd.Sum)
        assert metric.item() == sum(range(SIZE))
        optimizer.step()
        ranks = range(0 if step % 2 == 0 else 1, SIZE)
        check(model, sum(value(r, step) for r in ranks) / SIZE, len(ranks) / SIZE)


def test_a_metric_that_is_polled_before_step():
    model = Two()
    optimizer = wrap(model)
    for step in range(3):
        optimizer.zero_grad()
        if RANK > 0:
            model.loss(value(RANK, step), 1.0).backward()
        handle = hvd.allreduce_async(torch.tensor(1.0), name="metric", op=hvd.Sum)
        while not hvd.poll(handle):
            pass
        assert hvd.synchronize(handle).item() == SIZE
        optimizer.step()
        check(model, sum(value(r, step) for r in range(1, SIZE)) / SIZE, (SIZE - 1) / SIZE)


def test_reading_a_gradient_that_waits_for_another_rank():
    """Rank 0 is early and gives up waiting; what it reads is the reduced gradient all the same."""
    model = Two()
    optimizer = wrap(model)
    for step in range(3):
        optimizer.zero_grad()
        optimizer._patience_ms = 1
        if RANK > 0:  # rank 0 says when it has returned from backward
            hvd.broadcast(torch.zeros(1), 0, name="returned")
        model.loss(value(RANK, step), value(RANK, step)).backward()
        if RANK == 0:
            hvd.broadcast(torch.zeros(1), 0, name="returned")
        total = nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=bool(step % 2) or None)
        torch.testing.assert_close(total.item(), mean(step) * 10**0.5)
        optimizer.step()
        check(model, 10**-0.5, 10**-0.5)


def test_joined_ranks_and_two_backwards():
    model = Two()
    optimizer = wrap(model)
    for epoch in range(3):
        for step in range(2 + RANK):
            optimizer.zero_grad()
            for _ in range(1 + RANK):
                model.loss(value(RANK, step), 1.0).backward()
            optimizer.step()
            ranks = [r for r in range(SIZE) if step < 2 + r]
            check(
                model,
                sum(value(r, step) * (1 + r) for r in ranks) / SIZE,
                sum(1 + r for r in ranks) / SIZE,
            )
        hvd.join()
        hvd.broadcast_parameters(model.state_dict(), root_rank=SIZE - 1)
        assert epoch < 3


def test_remainder_of_passes_is_clipped_after_it_is_reduced():
    model = Two()
    optimizer = wrap(model, backward_passes_per_step=3)
    for step in range(3):
        optimizer.zero_grad()
        for _ in range(3 if step == 0 else 1 + (RANK + step) % 2):
            model.loss(value(RANK, step), 0.0).backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        passes = [3 if step == 0 else 1 + (r + step) % 2 for r in range(SIZE)]
        a = sum(n * value(r, step) for r, n in enumerate(passes)) / SIZE
        torch.testing.assert_close(norm.item(), a * 2)
        optimizer.step()
        check(model, 0.5, 0.0)


def test_passes_are_not_reduced_one_by_one():
    model = Two()
    optimizer = wrap(model, backward_passes_per_step=4)
    for step in range(2):
        optimizer.zero_grad()
        for _ in range(4):
            assert optimizer._round == 0
            model.loss(value(RANK, step), 0.0).backward()
        assert optimizer._round == 1
        assert type(model.a.grad) is torch.Tensor
        optimizer.step()
        check(model, 4 * mean(step), 0.0)


def test_two_optimizers_in_another_order():
    first, second = Two(), Two()
    optimizers = [
        wrap(m, named_parameters=[(f"{i}.{n}", p) for n, p in m.named_parameters()])
        for i, m in enumerate((first, second))
    ]
    for step in range(4):
        for optimizer in optimizers:
            optimizer.zero_grad()
        order = (first, second) if (RANK + step) % 2 else (second, first)
        for m in order:
            m.loss(value(RANK, step), 1.0).backward()
            if RANK == 1:
                m.loss(b=2.0).backward()
        for optimizer in optimizers:
            optimizer.step()
        for m in (first, second):
            check(m, mean(step), 1.0 + 2.0 / SIZE)


def test_synchronize_on_some_ranks():
    model = Two()
    optimizer = wrap(model)
    for step in range(3):
        optimizer.zero_grad()
        model.loss(value(RANK, step), 1.0).backward()
        if RANK == 0:
            optimizer.synchronize()
            with optimizer.skip_synchronize():
                optimizer.step()
        else:
            optimizer.step()
        check(model, mean(step), 1.0)


# ---- gradients that are kept or thrown away ----


@pytest.mark.parametrize("alias", ["same", "view", "detach", "part"])
@pytest.mark.parametrize("by", ["optimizer", "model"])
def test_kept_gradients_are_not_overwritten(alias, by):
    model = Two()
    optimizer = wrap(model)
    kept, expected = [], []
    for step in range(5):
        (optimizer if by == "optimizer" else model).zero_grad(set_to_none=True)
        model.loss(value(RANK, step), 2 * value(RANK, step)).backward()
        for p in (model.a, model.b):
            grad = p.grad
            if alias == "view":
                grad = grad.view(-1)
            elif alias == "detach":
                grad = grad.detach()
            elif alias == "part":
                grad = grad[1:]
            kept.append(grad)
            expected.append(grad.clone())
        check(model, mean(step), 2 * mean(step))
        if step % 2:
            optimizer.step()
    for grad, copy in zip(kept, expected, strict=True):
        assert torch.equal(grad, copy)
    optimizer.step()
    del kept
    gc.collect()


@pytest.mark.parametrize("is_mixed", [False, True])
@pytest.mark.parametrize("alias", ["same", "detach", "part", "numpy"])
def test_kept_gradients_under_checkpointing(alias, is_mixed):
    """The first gradient of a backward may come from one inside of it."""
    model = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])
    optimizer = wrap(model, lr=0.0)
    takes = {
        "same": lambda grad: grad,
        "detach": lambda grad: grad.detach(),
        "part": lambda grad: grad[1:],
        "numpy": lambda grad: grad.numpy(),
    }
    kept, expected = [], []
    for step in range(5):
        model.zero_grad(set_to_none=True)
        x = torch.full((1, 4), value(RANK, step), requires_grad=True)
        y = checkpoint(model[1], x, use_reentrant=True).sum()
        (y + model[0](x).sum() if is_mixed else y).backward()
        torch.testing.assert_close(model[1].weight.grad.clone(), torch.full((4, 4), mean(step)))
        kept.append(takes[alias](model[1].weight.grad))
        expected.append(torch.as_tensor(kept[-1]).clone())
        if step % 2:
            optimizer.step()
    for grad, copy in zip(kept, expected, strict=True):
        assert torch.equal(torch.as_tensor(grad), copy)
    optimizer.step()


def test_memory_of_gradients_under_checkpointing_stays():
    model = nn.ModuleList([nn.Linear(256, 256), nn.Linear(256, 256), nn.Linear(256, 256)])
    optimizer = wrap(model, lr=0.0)
    pointers = set()
    for step in range(12):
        optimizer.zero_grad()
        x = torch.full((1, 256), value(RANK, step), requires_grad=True)
        for layer in model[1:]:
            x = checkpoint(layer, x, use_reentrant=True)
        (x.sum() + model[0](x).sum()).backward()
        optimizer.step()
        pointers.add(model[1].weight.grad.data_ptr())
    if "HOROVOD_SHM_DISABLE" not in os.environ:
        assert len(pointers) == 1


def test_memory_of_kept_gradients_comes_back():
    model = nn.Linear(256, 256)
    optimizer = wrap(model, lr=0.0)
    pointers, lives = set(), []
    for step in range(30):
        optimizer.zero_grad()
        model(torch.full((1, 256), value(RANK, step))).sum().backward()
        kept = model.weight.grad
        pointers.add(kept.data_ptr())
        lives.append(weakref.ref(kept))
        optimizer.step()
    gc.collect()
    assert sum(life() is not None for life in lives) < 6
    if "HOROVOD_SHM_DISABLE" not in os.environ:  # malloc may give another address each time
        assert len(pointers) < 6


def test_gradient_surgery():
    """Two losses, each with gradients of its own, combined by hand."""
    model = Two()
    optimizer = wrap(model)
    for step in range(3):
        parts = []
        for task in range(2):
            optimizer.zero_grad()
            model.loss(value(RANK, step) * (task + 1), 1.0).backward()
            parts.append([p.grad for p in model.parameters()])
        for p, first, second in zip(model.parameters(), *parts, strict=True):
            p.grad = first - 2 * second
        check(model, mean(step) * (1 - 4), -1.0)
        optimizer.step()
        check(model, mean(step) * (1 - 4), -1.0)


def test_gradients_thrown_away_on_one_rank_are_an_error():
    model = Two()
    optimizer = wrap(model)
    for step in range(4):
        optimizer.zero_grad()
        model.loss(value(RANK, step), 1.0).backward()
        if step == 2 and RANK == 1:
            optimizer.zero_grad()
            model.loss(value(RANK, step), 1.0).backward()
        if step == 2:
            with pytest.raises(hvd.HorovodInternalError, match="Rank 1 threw gradients .* rank 0"):
                optimizer.step()
        else:
            optimizer.step()
            check(model, mean(step), 1.0)


@pytest.mark.parametrize("is_early", [True, False])
def test_clipping_after_different_numbers_of_backwards(is_early):
    """What other ranks still add would come after the clipping: ranks would drift apart."""
    model = Two()
    optimizer = wrap(model)
    for step in range(3):
        optimizer.zero_grad()
        for _ in range(1 + (RANK == 0)):
            model.loss(value(RANK, step), 0.0).backward()
        if is_early:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            text = "Rank [1-9] changed gradients .* before rank 0 had added all"
            with pytest.raises(hvd.HorovodInternalError, match=text):
                optimizer.step()
            continue
        optimizer.synchronize()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        torch.testing.assert_close(norm.item(), 2 * (mean(step) + value(0, step) / SIZE))
        with optimizer.skip_synchronize():
            optimizer.step()
        check(model, 0.5, 0.0)


def test_different_numbers_of_steps_are_an_error():
    model = Two()
    optimizer = wrap(model)
    if RANK == 0:
        optimizer._turn = 3  # as if it had been made before the others
    model.loss(1.0, 1.0).backward()
    text = "rank 0 has made 3 before this one, rank 1 has made 0"
    with pytest.raises(hvd.HorovodInternalError, match=text):
        optimizer.step()
    optimizer.zero_grad()
    model.loss(value(RANK, 0), 1.0).backward()
    optimizer.step()
    check(model, mean(0), 1.0)


# ---- parameters that come later ----


@pytest.mark.parametrize("on", ["all", "one"])
def test_frozen_parameters_wake_up(on):
    model = Two()
    model.b.requires_grad_(False)
    optimizer = wrap(model)
    for step in range(4):
        optimizer.zero_grad()
        if step == 2 and (on == "all" or RANK == 1):
            model.b.requires_grad_(True)
        loss = model.loss(value(RANK, step))
        if model.b.requires_grad:
            loss = loss + model.loss(b=value(RANK, step))
        loss.backward()
        optimizer.step()
        torch.testing.assert_close(model.a.grad, torch.full((4,), mean(step)))
        if step >= 2:
            b = mean(step) if on == "all" else value(1, step) / SIZE
            check(model, mean(step), b)
    weights = hvd.allgather(model.b.detach().reshape(1, -1))
    assert all(torch.equal(row, weights[0]) for row in weights)


@pytest.mark.parametrize("is_named", [True, False])
def test_added_parameter_groups(is_named):
    model = Two()
    names = list(model.named_parameters()) if is_named else [("a", model.a)]
    optimizer = wrap(model, optimizer=torch.optim.SGD([model.a], lr=1.0), named_parameters=names)
    for step in range(4):
        if step == 2:
            optimizer.add_param_group({"params": [model.b], "lr": 0.5})
            expected = "b" if is_named else "allreduce.noname.1.0"
            assert optimizer._parameter_names[model.b] == expected
        optimizer.zero_grad()
        model.b.grad = None
        model.loss(value(RANK, step), value(RANK, step)).backward()
        optimizer.step()
        if step >= 2:
            check(model, mean(step), mean(step))
    check_weights(model, -sum(map(mean, range(4))), -0.5 * (mean(2) + mean(3)))


@pytest.mark.skipif(SIZE & (SIZE - 1) != 0, reason="Adasum needs a power of two")
@pytest.mark.parametrize("passes", [1, 2])
def test_adasum_of_parameters_that_come_later(passes):
    """Each rank changes another element, so the sum of what they change is what comes out."""
    model, added = Two(), nn.Parameter(torch.zeros(4))
    model.b.requires_grad_(False)
    optimizer = wrap(model, op=hvd.Adasum, backward_passes_per_step=passes)
    for step in range(4):
        if step == 1:
            model.b.requires_grad_(True)
        if step == 2:
            optimizer.add_param_group({"params": [added], "lr": 1.0})
        optimizer.zero_grad()
        for _ in range(passes):
            loss = model.a[RANK] * 1.0 + added[RANK] * 3.0
            if step >= 1:
                loss = loss + model.b.view(-1)[RANK] * 2.0
            loss.backward()
        optimizer.step()
        if step < 2:
            added.grad = None
        for p, total in ((model.a, step + 1), (model.b, 2 * step), (added, 3 * max(0, step - 1))):
            expected = torch.zeros(p.numel())
            expected[:SIZE] = -float(total * passes)
            torch.testing.assert_close(p.detach().view(-1), expected)


# ---- sparse gradients ----


@pytest.mark.parametrize("sparse_as_dense", [False, True])
def test_sparse_gradients_on_some_ranks(sparse_as_dense):
    model = nn.Embedding(6, 2, sparse=True)
    nn.init.zeros_(model.weight)
    sgd = torch.optim.SGD(model.parameters(), lr=1.0)
    optimizer = wrap(model, optimizer=sgd, sparse_as_dense=sparse_as_dense)
    expected = torch.zeros(6, 2)
    for step in range(4):
        optimizer.zero_grad()
        if step % SIZE == RANK:
            model(torch.tensor([step, 5])).sum().backward()
        if step == 3 and RANK == 0:
            model(torch.tensor([1])).sum().backward()
        optimizer.step()
        assert model.weight.grad.is_sparse or sparse_as_dense
        expected[[step, 5]] -= 1.0 / SIZE
        if step == 3:
            expected[1] -= 1.0 / SIZE
        torch.testing.assert_close(model.weight.detach(), expected)


@pytest.mark.parametrize("backwards", [1, 2])
def test_sparse_gradients_where_a_rank_uses_another_part(backwards):
    """Rank 1 has started the embedding with zeros when it learns that it is a sparse one."""
    embedding, dense = nn.Embedding(6, 2, sparse=True), nn.Parameter(torch.zeros(3))
    nn.init.zeros_(embedding.weight)
    named = [("embedding", embedding.weight), ("dense", dense)]
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD([p for _, p in named], lr=1.0), named_parameters=named
    )
    expected = torch.zeros(6, 2)
    for step in range(3):
        optimizer.zero_grad()
        for _ in range(backwards):
            loss = (dense * value(RANK, step)).sum()
            if RANK != 1:
                loss = loss + embedding(torch.tensor([step, 5])).sum()
            loss.backward()
        optimizer.step()
        assert embedding.weight.grad.is_sparse
        expected[[step, 5]] -= backwards * (SIZE - 1) / SIZE
        torch.testing.assert_close(embedding.weight.detach(), expected)
        torch.testing.assert_close(dense.grad, torch.full((3,), backwards * mean(step)))


def test_sparse_adam_where_only_one_rank_has_a_gradient():
    model = nn.Embedding(4, 2, sparse=True)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    adam = torch.optim.SparseAdam(list(model.parameters()), lr=0.1)
    optimizer = wrap(model, optimizer=adam)
    for step in range(3):
        optimizer.zero_grad()
        if RANK == 1:
            model(torch.tensor([step])).sum().backward()
        optimizer.step()
    weights = hvd.allgather(model.weight.detach().reshape(1, -1))
    assert all(torch.equal(row, weights[0]) for row in weights)


def test_a_parameter_that_is_sparse_on_one_rank_and_dense_on_another():
    weight = nn.Parameter(torch.zeros(4, 2))
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD([weight], lr=1.0), named_parameters=[("w", weight)]
    )
    for step in range(3):
        optimizer.zero_grad()
        if RANK == 0:
            torch.nn.functional.embedding(torch.tensor([1]), weight, sparse=True).sum().backward()
        else:
            weight.sum().backward()
        optimizer.step()
        expected = torch.full((4, 2), -(SIZE - 1) / SIZE)
        expected[1] -= 1 / SIZE
        torch.testing.assert_close(weight.detach(), (step + 1) * expected)


# ---- the optimizers of users ----


class Demanding(torch.optim.SGD):
    """Wants an argument that nobody but its user knows."""

    def __init__(self, params, secret, **options):
        super().__init__(params, **options)
        self.secret = secret

    def step(self, closure=None):
        assert self.secret == 42
        return super().step(closure)


@pytest.mark.parametrize("op", [hvd.Average, hvd.Adasum])
def test_a_class_with_required_arguments(op):
    if op == hvd.Adasum and SIZE & (SIZE - 1):
        pytest.skip("Adasum needs a power of two")
    model = Two()
    optimizer = wrap(model, optimizer=Demanding(model.parameters(), 42, lr=1.0), op=op)
    assert isinstance(optimizer, Demanding)
    assert optimizer.secret == 42
    model.loss(value(RANK, 0), 1.0).backward()
    optimizer.step()
    weights = hvd.allgather(model.a.detach().reshape(1, -1))
    assert all(torch.equal(row, weights[0]) for row in weights)


def test_state_and_schedulers_of_the_raw_optimizer():
    model = Two()
    raw = torch.optim.SGD(model.parameters(), lr=1.0, momentum=0.5)
    torch.optim.lr_scheduler.StepLR(raw, 1)  # puts a step() of its own into the object
    model.loss(1.0, 1.0).backward()
    raw.step()  # as after loading a checkpoint
    raw.zero_grad()
    optimizer = wrap(model, optimizer=raw)
    assert optimizer.state[model.a]["momentum_buffer"] is raw.state[model.a]["momentum_buffer"]
    model.loss(value(RANK, 0), 1.0).backward()
    optimizer.step()
    check_weights(model, -1.0 - (0.5 + mean(0)), -1.0 - 1.5)
    calls = []
    optimizer.register_step_post_hook(lambda *_: calls.append(1))
    optimizer.step()
    assert calls == [1]


def test_wrapped_again_while_the_old_one_lives():
    model = Two()
    kept = []
    for step in range(4):
        optimizer = wrap(model)
        kept.append(optimizer)
        optimizer.zero_grad()
        model.loss(value(RANK, step), 1.0).backward()
        check(model, mean(step), 1.0)
        optimizer.step()
        check(model, mean(step), 1.0)
    model.zero_grad()
    model.loss(value(RANK, 7), 1.0).backward()
    kept[0].step()  # the old one applies what the new one has reduced
    check(model, mean(7), 1.0)


# ---- backwards that fail ----


def chain(layers, x, trip_at):
    """Gradients of the last layers are ready before the one in the middle fails."""
    for i, layer in enumerate(layers):
        if i == trip_at:
            x = Trip.apply(x)
        x = layer * x
    return x.sum()


@pytest.mark.parametrize("where", ["all", "one", "elsewhere"])
@pytest.mark.parametrize("halves", [1, 2])
def test_backward_is_tried_again(where, halves):
    layers = [nn.Parameter(torch.full((2,), 1.0)) for _ in range(5)]
    named = [(f"layer{i}", p) for i, p in enumerate(layers)]
    sgd = torch.optim.SGD(layers, lr=0.0)
    optimizer = hvd.DistributedOptimizer(sgd, named_parameters=named)
    for step in range(4):
        optimizer.zero_grad()
        fails = step > 0 and (where != "one" or RANK == 1)
        trip_at = 1 + RANK % 3 if where == "elsewhere" else 2
        x = torch.full((2,), value(RANK, step))
        if fails:
            Trip.is_armed = True
            with pytest.raises(MemoryError):
                chain(layers, x, trip_at).backward()
            optimizer.zero_grad()
        for _ in range(halves if fails else 1):
            chain(layers, x / (halves if fails else 1), trip_at).backward()
        optimizer.step()
        for p in layers:
            torch.testing.assert_close(p.grad, torch.full((2,), mean(step)))


def test_a_failed_backward_that_is_not_thrown_away_counts():
    model = Two()
    optimizer = wrap(model)
    for step in range(3):
        optimizer.zero_grad()
        if step > 0 and RANK == 0:
            Trip.is_armed = True
            with pytest.raises(MemoryError):
                (Trip.apply(model.a * 1.0).sum() + model.loss(b=1.0)).backward()
            Trip.is_armed = False
            model.b.grad = None if model.b.grad is None else model.b.grad
        model.loss(value(RANK, step), 0.0).backward()
        optimizer.step()
        torch.testing.assert_close(model.a.grad, torch.full((4,), mean(step)))
        rows = hvd.allgather(model.b.grad.reshape(1, -1))
        assert all(torch.equal(row, rows[0]) for row in rows)


# ---- re-entrant backwards ----


@pytest.mark.parametrize("is_mixed", [False, True])
def test_a_layer_used_several_times_under_checkpointing(is_mixed):
    torch.manual_seed(3)
    layer, last = nn.Linear(3, 3), nn.Linear(3, 1)
    model = nn.ModuleList([layer, last])
    alone = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 1)])
    alone.load_state_dict(model.state_dict())
    optimizer = wrap(model, lr=0.1)
    reference = torch.optim.SGD(alone.parameters(), lr=0.1)

    def forward(m, x, is_checkpointed):
        x = x.requires_grad_()
        for _ in range(3):
            x = checkpoint(m[0], x, use_reentrant=True) if is_checkpointed else m[0](x)
        if is_mixed:
            x = m[0](x)
        return m[1](x).mean()

    for step in range(3):
        everything = torch.randn(SIZE, 3, generator=torch.Generator().manual_seed(step))
        optimizer.zero_grad()
        forward(model, everything[RANK : RANK + 1].clone(), True).backward()
        optimizer.step()
        reference.zero_grad()
        forward(alone, everything.clone(), False).backward()
        reference.step()
    for p, q in zip(model.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(p, q)


def test_everything_under_checkpointing_is_reduced_when_it_is_read():
    torch.manual_seed(4)
    model = nn.Linear(3, 1)
    alone = nn.Linear(3, 1)
    alone.load_state_dict(model.state_dict())
    optimizer = wrap(model)
    x = torch.eye(3)[RANK % 3 : RANK % 3 + 1].requires_grad_()
    for _ in range(3):
        optimizer.zero_grad()
        checkpoint(model, x, use_reentrant=True).sum().backward()
        rows = torch.stack([torch.eye(3)[r % 3] for r in range(SIZE)])
        expected = rows.mean(0, keepdim=True)
        assert torch.equal(model.weight.grad.clone(), expected)
        optimizer.step()
        assert torch.equal(model.weight.grad, expected)


def test_step_inside_of_backward():
    """One optimizer per parameter, stepped as soon as its gradient is there."""
    model = Two()
    optimizers = {
        name: hvd.DistributedOptimizer(torch.optim.SGD([p], lr=1.0), named_parameters=[(name, p)])
        for name, p in model.named_parameters()
    }

    def apply(name, p):
        optimizers[name].step()
        optimizers[name].zero_grad()

    for name, p in model.named_parameters():
        p.register_post_accumulate_grad_hook(lambda p, name=name: apply(name, p))
    for step in range(3):
        model.loss(value(RANK, step), 1.0).backward()
    check_weights(model, -sum(map(mean, range(3))), -3.0)
