# SPDX-License-Identifier: Apache-2.0
"""Training loops drawn at random, other ones on each rank, against one process with all the data.

A seed draws a model, the options of its optimizer and, for each step and rank, what that rank does
before it calls step(): backwards through parts of the network, one that fails and is tried again,
other collectives in between, looks at gradients, nothing at all; at the end ranks run out of data
at different times. Every rank knows what all others do, so each can compute the weights that one
process would have. TEST_SEEDS=first:count chooses; a failing test names its seed.
"""

import os
import random

import horovod.torch as hvd
import pytest
import torch
from torch import nn
from trip import Trip

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
FIRST, COUNT = (int(part) for part in os.environ.get("TEST_SEEDS", "0:25").split(":"))
STEPS = 6
SHAPES = [(3,), (2, 2), (5,), (1,), (2, 3)]


class Backward:
    """The gradient of each of `parts` is that number, everywhere."""

    def __init__(self, rng, count):
        parts = rng.sample(range(count), rng.randint(1, count))
        self.parts = {i: float(rng.randint(-8, 8)) for i in sorted(parts)}
        self.retain_graph = rng.random() < 0.2

    def loss(self, model, trip_at=None):
        total = torch.zeros(())
        for i, number in self.parts.items():
            term = (model[i] * number).sum()
            total = Trip.apply(total + term) if i == trip_at else total + term
        return total


class Plan:
    """What one rank does in one step."""

    def __init__(self, seed, step, rank, count):
        shared = random.Random(f"{seed}.{step}")
        rng = random.Random(f"{seed}.{step}.{rank}")
        self.backwards = [Backward(rng, count) for _ in range(rng.choice([0, 1, 1, 1, 1, 2, 3]))]
        if shared.random() < 0.3:  # the usual step: one backward of everything
            self.backwards = [Backward(rng, count)]
            self.backwards[0].parts = {i: float(rng.randint(-8, 8)) for i in range(count)}
        self.fails = bool(self.backwards) and rng.random() < 0.2
        self.metric_at = rng.randint(0, len(self.backwards)) if shared.random() < 0.5 else None
        self.is_polled = rng.random() < 0.3
        # A look at a gradient waits for the others, who must not wait for this rank's metric.
        self.looks = rng.random() < 0.3 and self.metric_at is None
        self.synchronizes = rng.random() < 0.2
        self.sets_to_none = rng.random() < 0.7

    def contribution(self, i):
        return sum(backward.parts.get(i, 0.0) for backward in self.backwards)


def metric(step, is_polled):
    handle = hvd.allreduce_async(torch.tensor(float(RANK)), name=f"metric.{step}", op=hvd.Sum)
    while is_polled and not hvd.poll(handle):
        pass
    return hvd.synchronize(handle).item()


def run_backwards(model, optimizer, plan, step, active):
    for k, backward in enumerate(plan.backwards):
        if plan.metric_at == k:
            assert metric(step, plan.is_polled) == sum(active)
        if k == 0 and plan.fails:
            Trip.is_armed = True
            trip_at = sorted(backward.parts)[len(backward.parts) // 2]
            with pytest.raises(MemoryError):
                backward.loss(model, trip_at).backward()
            optimizer.zero_grad(set_to_none=plan.sets_to_none)
        backward.loss(model).backward(retain_graph=backward.retain_graph)
    if plan.metric_at == len(plan.backwards):
        assert metric(step, plan.is_polled) == sum(active)


@pytest.mark.parametrize("seed", range(FIRST, FIRST + COUNT))
def test_random_training(seed):
    shared = random.Random(seed)
    count = shared.randint(1, len(SHAPES))
    model = [nn.Parameter(torch.zeros(shape)) for shape in SHAPES[:count]]
    names = [(f"{seed}.{i}", p) for i, p in enumerate(model)]
    op = shared.choice([hvd.Average, hvd.Sum])
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model, lr=1.0),
        named_parameters=names,
        op=op,
        groups=shared.choice([None, None, 1, 2]),
        backward_passes_per_step=shared.choice([1, 1, 1, 2, 3]),
    )
    optimizer._is_overlapping = random.Random(f"{seed}.{RANK}").random() < 0.5
    has_join = shared.random() < 0.4
    ends = [shared.randint(2, STEPS) if has_join else STEPS for _ in range(SIZE)]
    expected = [0.0] * count
    for step in range(ends[RANK]):
        plans = {r: Plan(seed, step, r, count) for r in range(SIZE) if step < ends[r]}
        mine = plans[RANK]
        optimizer.zero_grad(set_to_none=mine.sets_to_none)
        run_backwards(model, optimizer, mine, step, list(plans))
        if mine.looks and model[0].grad is not None:
            model[0].grad.norm()
        if mine.synchronizes:
            optimizer.synchronize()
            with optimizer.skip_synchronize():
                optimizer.step()
        else:
            optimizer.step()
        for i, p in enumerate(model):
            total = sum(plan.contribution(i) for plan in plans.values())
            expected[i] -= total / SIZE if op == hvd.Average else total
            torch.testing.assert_close(
                p.detach(), torch.full(p.shape, expected[i]), msg=lambda t, s=step: f"step {s}: {t}"
            )
    if has_join:
        hvd.join()
    torch.testing.assert_close(hvd.allreduce(torch.ones(3), name=f"end.{seed}"), torch.ones(3))
