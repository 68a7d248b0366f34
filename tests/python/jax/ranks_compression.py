# SPDX-License-Identifier: Apache-2.0
"""Compression.fp16 and .bf16: float32 is converted by the core, and only where it leaves memory
that ranks share; everything else is cast."""

import os

import horovod.jax as hvd
import jax
import jax.numpy as jnp
import numpy as np
import pytest

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
HAS_NETWORK = "HOROVOD_SHM_DISABLE" in os.environ and SIZE > 1
COMPRESSIONS = [hvd.Compression.fp16, hvd.Compression.bf16]
TOLERANCE = {hvd.Compression.fp16: (SIZE + 1) / 2048, hvd.Compression.bf16: (SIZE + 1) / 256}


def values(rank, count=10007):
    return np.random.default_rng(rank).standard_normal(count).astype(np.float32)


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("op", [hvd.Sum, hvd.Average])
@pytest.mark.parametrize("is_compiled", [False, True])
def test_values(compression, op, is_compiled):
    def reduce(x):
        tree = {"single": x, "half": x.astype(jnp.float16), "whole": jnp.arange(3)}
        return hvd.allreduce(tree, op=hvd.Sum, compression=compression), (
            hvd.allreduce(x, op=op, compression=compression, name="one")
        )

    mine = jnp.asarray(values(RANK))
    plain = np.asarray(hvd.allreduce(mine, op=op))
    tree, result = (jax.jit(reduce) if is_compiled else reduce)(mine)
    assert tree["single"].dtype == jnp.float32 and tree["half"].dtype == jnp.float16
    assert np.array_equal(tree["whole"], np.arange(3) * SIZE)
    scale = sum(np.abs(values(rank)) for rank in range(SIZE)) / (1 if op == hvd.Sum else SIZE)
    assert result.dtype == jnp.float32
    assert np.all(np.abs(np.asarray(result) - plain) <= scale * TOLERANCE[compression])
    assert np.array_equal(np.asarray(result), plain) != HAS_NETWORK
    rows = np.asarray(hvd.allgather(result.reshape(1, -1)))
    assert all(np.array_equal(row, rows[0]) for row in rows)


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_gradient(compression):
    def loss(x):
        return hvd.allreduce(x, op=hvd.Sum, compression=compression).sum()

    assert np.array_equal(jax.grad(loss)(jnp.ones(7)), np.full(7, SIZE))


@pytest.mark.skipif(not HAS_NETWORK, reason="nothing travels")
def test_bytes():
    def sent_bytes():
        return sum(link["sent_bytes"] for link in hvd.metrics()["links"])

    mine = jnp.asarray(values(RANK, 300_000))
    start = sent_bytes()
    hvd.allreduce(mine, name="bytes").block_until_ready()
    plain = sent_bytes() - start
    small = hvd.allreduce(mine, name="bytes.small", compression=hvd.Compression.bf16)
    small.block_until_ready()
    assert plain > 0 and (sent_bytes() - start - plain) * 2 == plain
