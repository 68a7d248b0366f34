# SPDX-License-Identifier: Apache-2.0
"""Errors arrive on every rank with our text, and the next call works."""

import horovod.jax as hvd
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from horovod.common.exceptions import HorovodInternalError

with pytest.raises(ValueError, match="has not been initialized"):
    hvd.rank()
with pytest.raises((ValueError, RuntimeError), match="has not been initialized"):
    hvd.allreduce(jnp.ones(1))

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
# JAX chooses the class of what fails in a program, by version and by where it waits.
IN_PROGRAM = (RuntimeError, ValueError)
TYPES = [jnp.float32, jnp.int32, jnp.float16]


def run(function, is_compiled):
    return jax.block_until_ready((jax.jit(function) if is_compiled else function)())


def check_alive():
    assert np.allclose(hvd.allreduce(jnp.ones([3]), op=hvd.Sum), SIZE)
    assert np.allclose(jax.jit(lambda: hvd.allreduce(jnp.ones([3]), op=hvd.Sum))(), SIZE)


DISAGREEMENTS = {
    "shape": (lambda: hvd.allreduce(jnp.ones([2 + RANK])), "Mismatched ALLREDUCE tensor shapes"),
    "dtype": (lambda: hvd.allreduce(jnp.ones([2], TYPES[RANK])), "Mismatched data types"),
    "operation": (
        lambda: hvd.allreduce(jnp.ones([2]), op=[hvd.Sum, hvd.Max, hvd.Min][RANK]),
        "Mismatched reduction operation",
    ),
    "scale": (
        lambda: hvd.allreduce(jnp.ones([2]), op=hvd.Sum, prescale_factor=1.0 + RANK),
        "Mismatched prescale",
    ),
    "root": (lambda: hvd.broadcast(jnp.ones([2]), RANK), "Mismatched BROADCAST root ranks"),
    "rows": (lambda: hvd.allgather(jnp.ones([2, 2 + RANK])), "Mismatched ALLGATHER tensor shapes"),
    "group": (
        lambda: hvd.grouped_allreduce([jnp.ones([2 + RANK]), jnp.ones([2])]),
        "Mismatched ALLREDUCE tensor shapes",
    ),
}


@pytest.mark.parametrize("is_compiled", [False, True])
@pytest.mark.parametrize("kind", DISAGREEMENTS)
def test_disagreement(kind, is_compiled):
    function, message = DISAGREEMENTS[kind]
    with pytest.raises(IN_PROGRAM if is_compiled else HorovodInternalError, match=message):
        run(function, is_compiled)
    check_alive()


@pytest.mark.parametrize("is_compiled", [False, True])
def test_bad_arguments(is_compiled):
    def check(function, message):
        with pytest.raises(IN_PROGRAM, match=message):
            run(function, is_compiled)

    received = {"received_splits": [4] * SIZE}
    check(lambda: hvd.alltoall(jnp.ones(4), [9] * SIZE, **received), "greater than the first dim")
    check(lambda: hvd.alltoall(jnp.ones(4), [1] * (SIZE + 1), **received), "does not equal number")
    check(lambda: hvd.alltoall(jnp.ones(4), [[1, 1]]), "1D splits")
    check(lambda: hvd.broadcast(jnp.ones(4), SIZE), "invalid root rank")
    check(lambda: hvd.reducescatter(jnp.ones(4), op=hvd.Max), "only supports AVERAGE and SUM")
    check(lambda: hvd.allgather(jnp.float32(1)), "at least one dimension")
    check(lambda: hvd.reducescatter(jnp.float32(1)), "at least one dimension")
    check_alive()


@pytest.mark.parametrize("is_compiled", [False, True])
def test_types(is_compiled):
    with pytest.raises(TypeError, match="does not compute with uint32"):
        run(lambda: hvd.allreduce(jnp.ones(2, jnp.uint32)), is_compiled)
    with pytest.raises(TypeError, match="does not compute with complex64"):
        run(lambda: hvd.reducescatter(jnp.ones(2, jnp.complex64)), is_compiled)
    check_alive()


def test_rows_that_differ_in_a_program():
    with pytest.raises(IN_PROGRAM, match=r"compiled for \[\d+\]. Inside jit all ranks must"):
        run(lambda: hvd.allgather(jnp.ones(4 + 4 * RANK)), True)
    with pytest.raises(ValueError, match="must pass equally many rows"):
        jax.vjp(hvd.allgather, jnp.ones(4 + 4 * RANK))
    check_alive()


def test_a_rank_that_fails_before_it_calls():
    def step(x):
        if RANK == 0:
            raise KeyError("only here")
        return hvd.allreduce(x)

    with pytest.raises(KeyError) if RANK == 0 else pytest.raises(TypeError):
        jax.jit(step if RANK == 0 else lambda x: hvd.allreduce(x.astype("uint32")))(jnp.ones(2))
    check_alive()


def test_errors_of_several_calls_in_a_program():
    @jax.jit
    def many():
        good = [hvd.allreduce(jnp.ones(2) * i, op=hvd.Sum) for i in range(4)]
        return good, hvd.allreduce(jnp.ones(2 + RANK))

    for _ in range(5):
        with pytest.raises(IN_PROGRAM, match="Mismatched ALLREDUCE"):
            jax.block_until_ready(many())
    check_alive()


def test_error_in_a_loop():
    def body(carry, _):
        return carry + hvd.allreduce(jnp.ones(2 + RANK))[0], None

    with pytest.raises(IN_PROGRAM, match="Mismatched ALLREDUCE"):
        jax.block_until_ready(jax.jit(lambda: jax.lax.scan(body, 0.0, None, length=3))())
    check_alive()


def test_unregistered_process_set():
    with pytest.raises(ValueError, match="has not been registered"):
        hvd.allreduce(jnp.ones(1), process_set=hvd.ProcessSet([0]))


def test_shutdown_waits_for_programs():
    """Nobody looks at the results before: the steps are still running, or have not begun."""
    step = jax.jit(lambda x: hvd.allreduce(x, op=hvd.Average) + 1)
    x = jnp.zeros(200_000)
    for _ in range(30):
        x = step(x)
    hvd.shutdown()
    assert np.all(np.asarray(x) == 30)
    hvd.init()


def test_after_shutdown():
    function = jax.jit(lambda x: hvd.allreduce(x, op=hvd.Sum))
    function(jnp.ones(2))
    hvd.barrier()
    hvd.shutdown()
    with pytest.raises(IN_PROGRAM, match="has not been initialized"):
        jax.block_until_ready(function(jnp.ones(2)))
    hvd.init()
    assert np.allclose(function(jnp.ones(2)), SIZE)
