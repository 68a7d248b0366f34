# SPDX-License-Identifier: Apache-2.0
"""How collectives of torch.distributed are named: equally on ranks that agree, and repeatedly."""

import random

import pytest

pytest.importorskip("torch")

from horovod.torch.distributed.order import SLOTS, Order  # noqa: E402


def names_of(order, keys):
    return [order.take(key)[1] for key in keys]


@pytest.mark.parametrize("step", [1, 2, 3, 5, 7, 8, 20, 100])
def test_a_step_that_repeats_gets_the_same_names_again(step):
    keys = [("r", i % 3, i) for i in range(step)]
    order = Order("g")
    names_of(order, keys * (60 // step + 6))
    seen = {}
    for _ in range(4 * SLOTS):
        for name, key in zip(names_of(order, keys), keys, strict=True):
            assert seen.setdefault(name, key) == key
    assert len(seen) == max(step, step * -(-SLOTS // step))


def test_many_equal_ones_in_a_step():
    keys = [*(["gather"] * 6), *(["gather", "scatter"] * 6), "norm"]
    order = Order("g")
    names_of(order, keys * 20)
    seen = {}
    for _ in range(10):
        for name, key in zip(names_of(order, keys), keys, strict=True):
            assert seen.setdefault(name, key) == key


def test_names_in_flight_are_different():
    order = Order("g")
    names = names_of(order, ["a"] * 1000)
    for i in range(100, 1000 - SLOTS):
        assert len(set(names[i : i + SLOTS])) == SLOTS


@pytest.mark.parametrize("seed", range(20))
def test_ranks_agree_on_names_after_a_disagreement(seed):
    rng = random.Random(seed)
    step = [rng.randrange(4) for _ in range(rng.randrange(1, 30))]
    ranks = [Order("g"), Order("g")]
    for _ in range(rng.randrange(10)):
        assert names_of(ranks[0], step) == names_of(ranks[1], step)
    place = rng.randrange(len(step))
    for i, key in enumerate(step):
        if i != place:
            assert ranks[0].take(key) == ranks[1].take(key)
            continue
        position, name = ranks[0].take("mine")
        assert ranks[1].take("other") == (position, name)
        for rank in ranks:
            rank.disagreed(position)
    for _ in range(30):
        assert names_of(ranks[0], step) == names_of(ranks[1], step)


def test_a_history_without_a_period_is_bounded():
    rng = random.Random(1)
    order = Order("g")
    for _ in range(50_000):
        order.take(rng.randrange(10**9))
    assert len(order._keys) <= 4 * 2048
