# SPDX-License-Identifier: Apache-2.0
"""A rank that dies inside a program: the others get an error with the cause, and end."""

import sys

SCRIPT = """
import os
import horovod.jax as hvd, jax, jax.numpy as jnp
hvd.init()
step = jax.jit(lambda x: hvd.allreduce(x, op=hvd.Sum))
for i in range(100):
    if i == 3 and hvd.rank() == 1:
        os._exit(7)
    try:
        jax.block_until_ready(step(jnp.ones(1000)))
    except (RuntimeError, ValueError) as error:
        assert i >= 3 and "UNKNOWN: Horovod" in str(error), error
        print("caught:", error, flush=True)
        break
"""


def test_death(launch_ranks):
    result = launch_ranks(2, sys.executable, "-c", SCRIPT)
    assert result.returncode != 0
    assert "exited with code 7" in result.stdout, result.stdout[-4000:]


PENDING = """
import horovod.jax as hvd, jax, jax.numpy as jnp
hvd.init()
step = jax.jit(lambda x: hvd.allreduce(x, op=hvd.Sum))
step(jnp.ones(1000)).block_until_ready()
if hvd.rank() == 0:
    step(jnp.ones(1000))  # rank 1 never calls it; nobody waits for the result
print("end", flush=True)
"""


def test_exit_with_a_pending_collective(launch_ranks):
    """Whatever becomes of the result, no rank hangs at its end."""
    result = launch_ranks(2, sys.executable, "-c", PENDING, deadline_s=300)
    assert result.stdout.count("end") == 2, result.stdout[-4000:]
