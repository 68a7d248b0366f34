# SPDX-License-Identifier: Apache-2.0
"""Process sets on three ranks: eager, compiled, with gradients, side by side."""

import horovod.jax as hvd
import jax
import jax.numpy as jnp
import numpy as np
import pytest

PAIR = hvd.ProcessSet([0, 2])
ALONE = hvd.ProcessSet([1])
hvd.init(process_sets=[PAIR, ALONE])
RANK = hvd.rank()
MINE = ALONE if RANK == 1 else PAIR


@pytest.mark.parametrize("is_compiled", [False, True])
def test_collectives(is_compiled):
    def compute(x):
        return (
            hvd.allreduce(x, op=hvd.Sum, process_set=MINE),
            hvd.allgather(x, process_set=MINE),
            hvd.broadcast(x, MINE.ranks[-1], process_set=MINE),
            hvd.reducescatter(x, op=hvd.Sum, process_set=MINE),
            hvd.alltoall(x, process_set=MINE),
        )

    function = jax.jit(compute) if is_compiled else compute
    members = MINE.ranks
    total, gathered, sent, part, exchanged = function(jnp.full(4, float(RANK)))
    assert np.allclose(total, sum(members))
    assert np.allclose(gathered, np.repeat(members, 4))
    assert np.allclose(sent, members[-1])
    assert part.shape == (4 // len(members),) and np.allclose(part, sum(members))
    assert np.allclose(exchanged, np.repeat(members, 4 // len(members)))


def test_gradient():
    def loss(x):
        return (hvd.allgather(x, process_set=MINE) ** 2).sum()

    value = jax.jit(jax.grad(loss))(jnp.full(2, float(RANK + 1)))
    assert np.allclose(value, 2 * (RANK + 1) * len(MINE.ranks))


def test_world_and_set_in_one_program():
    @jax.jit
    def both(x):
        part = hvd.allreduce(x, op=hvd.Sum, process_set=MINE)
        return part, hvd.allreduce(x, op=hvd.Sum)

    part, whole = both(jnp.full(3, float(RANK)))
    assert np.allclose(part, sum(MINE.ranks)) and np.allclose(whole, 3)


def test_objects():
    assert hvd.allgather_object(RANK, process_set=MINE) == MINE.ranks
    assert hvd.broadcast_object(RANK, MINE.ranks[0], process_set=MINE) == MINE.ranks[0]


def test_foreign_set():
    other = PAIR if RANK == 1 else ALONE
    for function in (hvd.allreduce, jax.jit(lambda x: hvd.allreduce(x, process_set=other))):
        with pytest.raises((RuntimeError, ValueError)):
            jax.block_until_ready(
                function(jnp.ones(2), process_set=other)
                if function is hvd.allreduce
                else function(jnp.ones(2))
            )
    assert np.allclose(hvd.allreduce(jnp.ones(2), op=hvd.Sum), 3)


def test_sets_that_are_added():
    hvd.barrier()
    if hvd.global_process_set.size() == 3:
        hvd.barrier(process_set=MINE)
    assert PAIR.size() == 2 and MINE.included()
