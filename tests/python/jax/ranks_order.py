# SPDX-License-Identifier: Apache-2.0
"""Many independent collectives in one program, on ranks that schedule them differently.

HVD_TEST_PINNED: this rank is pinned to one core before JAX starts, so its XLA has one thread.
HVD_TEST_ROUNDS: how often the program of 24 collectives runs (20).
"""

import os
import re

RANK = int(os.environ["HOROVOD_RANK"])
if os.environ.get("HVD_TEST_PINNED") == str(RANK):
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

import horovod.jax as hvd  # noqa: E402
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from horovod.jax import library  # noqa: E402

hvd.init()
SIZE = hvd.size()
COUNT = 24
LENGTH = 100_000
ROUNDS = int(os.environ.get("HVD_TEST_ROUNDS", "20"))


@jax.jit
def independent(xs):
    results = []
    for i in range(COUNT):
        # Work of a different length before each, so that XLA starts them in an order of its own.
        x = xs[i]
        for _ in range((i * 7) % 5):
            x = jnp.sin(jnp.cos(x)) * 0 + xs[i]
        results.append(hvd.allreduce(x, op=hvd.Sum, name=f"independent{i}"))
    return results


def test_no_deadlock_whatever_the_order():
    xs = [jnp.full(LENGTH, float(i + RANK)) for i in range(COUNT)]
    ranks = sum(range(SIZE))
    for _ in range(ROUNDS):
        for i, result in enumerate(independent(xs)):
            assert np.all(np.asarray(result) == i * SIZE + ranks), i


def test_different_collectives_side_by_side():
    @jax.jit
    def mixed(xs):
        return (
            [hvd.allreduce(x, op=hvd.Sum) for x in xs],
            [hvd.allgather(x[:5]) for x in xs],
            [hvd.broadcast(x, SIZE - 1) for x in xs],
            [hvd.reducescatter(x, op=hvd.Sum) for x in xs],
        )

    xs = [jnp.full(LENGTH, float(i)) + RANK for i in range(6)]
    ranks = sum(range(SIZE))
    for _ in range(10):
        sums, gathered, sent, parts = mixed(xs)
        for i in range(6):
            assert np.all(np.asarray(sums[i]) == i * SIZE + ranks)
            assert np.allclose(gathered[i], np.repeat([i + r for r in range(SIZE)], 5))
            assert np.all(np.asarray(sent[i]) == i + SIZE - 1)
            assert np.all(np.asarray(parts[i]) == i * SIZE + ranks)


def test_a_program_whose_text_differs_in_order():
    """Names make the pairs, not the order in which a rank's function mentions them."""
    if library.IS_BLOCKING:
        return  # without futures all ranks must run the same program

    @jax.jit
    def program(xs):
        order = range(COUNT) if RANK % 2 == 0 else reversed(range(COUNT))
        results = {i: hvd.allreduce(xs[i], op=hvd.Sum, name=f"text{i}") for i in order}
        return [results[i] for i in range(COUNT)]

    xs = [jnp.full(LENGTH, float(i)) for i in range(COUNT)]
    for _ in range(10):
        for i, result in enumerate(program(xs)):
            assert np.all(np.asarray(result) == i * SIZE)


def names_in(function, *arguments):
    """The names of the collectives in a program, one for each time that it calls one."""
    text = function.lower(*arguments).as_text()
    return re.findall(r'name = "(jax[^"]*)"', text)


def test_functions_that_a_program_uses_twice():
    """Ranks must not combine the first use with the second, whatever order XLA chooses."""

    @jax.jit
    def inner(x):
        return hvd.allreduce(x, op=hvd.Sum)

    @jax.jit
    def around(x):
        return inner(x) + inner(2 * x)

    @jax.jit
    def program(a, b):
        first, second = inner(a), inner(b)
        return first, second, around(a), around(b)

    a, b = jnp.full(LENGTH, 1.0), jnp.full(LENGTH, 100.0)
    names = names_in(program, a, b)
    assert len(names) == len(set(names)) == 6, names
    if library.IS_BLOCKING:
        return  # functions have no order of their own without futures
    for _ in range(10):
        first, second, third, fourth = program(a, b)
        assert np.all(np.asarray(first) == SIZE) and np.all(np.asarray(second) == 100 * SIZE)
        assert np.all(np.asarray(third) == 3 * SIZE) and np.all(np.asarray(fourth) == 300 * SIZE)


def test_loops_and_branches_that_a_program_uses_twice():
    def body(carry, _):
        return hvd.allreduce(carry, op=hvd.Average) + 1, None

    def either(x):
        return jax.lax.cond(x[0] > 0, lambda v: hvd.allreduce(v, op=hvd.Sum), lambda v: v, x)

    @jax.jit
    def program(a, b):
        looped = [jax.lax.scan(body, x, None, length=3)[0] for x in (a, b)]
        return looped, [either(a), either(b)], [jax.checkpoint(either)(x) for x in (a, b)]

    a, b = jnp.full(LENGTH, 1.0), jnp.full(LENGTH, 100.0)
    names = names_in(program, a, b)
    assert len(names) == len(set(names)) == 6, names
    if library.IS_BLOCKING:
        return
    for _ in range(5):
        looped, branched, again = program(a, b)
        for x, value in ((0, 1), (1, 100)):
            assert np.all(np.asarray(looped[x]) == value + 3)
            assert np.all(np.asarray(branched[x]) == value * SIZE)
            assert np.all(np.asarray(again[x]) == value * SIZE)


def test_work_goes_on_while_a_collective_waits():
    @jax.jit
    def program(x, y):
        reduced = hvd.allreduce(x, op=hvd.Sum)
        return reduced, (y @ y).sum()

    for _ in range(10):
        reduced, work = program(jnp.ones(LENGTH), jnp.ones((200, 200)))
        assert np.all(np.asarray(reduced) == SIZE) and work == 200.0**3


def test_loop_beside_other_collectives():
    @jax.jit
    def program(x):
        def body(carry, _):
            return hvd.allreduce(carry, op=hvd.Average) + 1, None

        looped, _ = jax.lax.scan(body, x, None, length=10)
        return looped, hvd.allreduce(x * 2, op=hvd.Sum)

    if library.IS_BLOCKING:
        return  # a loop and what stands beside it have no order of their own
    for _ in range(5):
        looped, beside = program(jnp.full(LENGTH, 1.0))
        assert np.all(np.asarray(looped) == 11) and np.all(np.asarray(beside) == 2 * SIZE)
