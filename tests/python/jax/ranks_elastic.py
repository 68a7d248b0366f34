# SPDX-License-Identifier: Apache-2.0
"""JaxState: save, restore, share; a failed program makes the training function start anew."""

import horovod.jax as hvd
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from horovod.common.exceptions import HorovodInternalError

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()


def make_state():
    params = {"w": jnp.full(3, float(RANK)), "n": jnp.int32(RANK)}
    return hvd.elastic.JaxState(params=params, key=jax.random.key(RANK), epoch=RANK, note="x")


def test_sync():
    state = make_state()
    state.sync()
    assert np.all(np.asarray(state.params["w"]) == 0) and int(state.params["n"]) == 0
    assert state.epoch == 0 and state.note == "x"
    assert np.array_equal(jax.random.key_data(state.key), jax.random.key_data(jax.random.key(0)))


def test_restore_after_donation():
    state = make_state()
    state.commit()
    step = jax.jit(lambda p: jax.tree_util.tree_map(lambda x: x + 1, p), donate_argnums=0)
    state.params = step(state.params)
    state.params = step(state.params)
    state.epoch = 9
    state.restore()
    assert np.all(np.asarray(state.params["w"]) == RANK) and state.epoch == RANK
    assert isinstance(state.params["w"], jax.Array)
    state.params = step(state.params)
    state.save()
    assert np.all(np.asarray(state.params["w"]) == RANK + 1)


def test_run_starts_anew():
    attempts = []

    @hvd.elastic.run
    def train(state):
        attempts.append(state.epoch)
        if len(attempts) == 1:
            raise HorovodInternalError("lost")
        return float(jax.jit(lambda x: hvd.allreduce(x, op=hvd.Sum))(jnp.float32(1)))

    state = make_state()
    assert train(state) == SIZE
    assert len(attempts) == 2


def test_errors_of_programs():
    def fail(state, text):
        raise RuntimeError(text)

    with pytest.raises(RuntimeError, match="something else"):
        hvd.elastic.run(fail)(make_state(), "something else")
    calls = []

    @hvd.elastic.run
    def lost_peer(state):
        calls.append(1)
        if len(calls) == 1:
            raise RuntimeError("UNKNOWN: Horovod: rank 1 died")
        return "again"

    assert lost_peer(make_state()) == "again"
