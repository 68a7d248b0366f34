# SPDX-License-Identifier: Apache-2.0
"""horovod.spark.run_elastic(): a lost rank or task is replaced, and training goes on."""

import os
import signal
import sys
import time
from pathlib import Path

import cloudpickle
import horovod.spark
import pytest

cloudpickle.register_pickle_by_value(sys.modules[__name__])

STEPS = 30


def train(folder, victim, how):
    """Counts steps; the victim of the first round ends itself at step 10, in some way."""
    import horovod.torch as hvd
    import torch

    folder = Path(folder)
    hvd.init()
    (folder / str(os.getpid())).write_text(f"{hvd.rank()} {os.getppid()}")
    state = hvd.elastic.TorchState(model=torch.nn.Linear(1, 1), step=0, total=0.0)

    @hvd.elastic.run
    def loop(state):
        while state.step < STEPS:
            state.total += float(hvd.allreduce(torch.ones(1), name="x", op=hvd.Average))
            state.step += 1
            flag = folder.parent / "happened"
            if state.step == 10 and hvd.rank() == victim and not flag.exists():
                flag.write_text("")
                how(folder)
            state.commit()
            time.sleep(0.02)
        return hvd.rank(), hvd.size(), state.step, state.total

    return loop(state)


def raise_error(_):
    raise ValueError("the victim fails")


def kill_task(_):
    """Kill the process of the Spark task, as the loss of an executor would."""
    agent = os.getppid()
    task = int(Path(f"/proc/{agent}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(task, signal.SIGKILL)
    time.sleep(600)


@pytest.mark.parametrize("how", [raise_error, kill_task])
def test_a_lost_rank_is_replaced(spark, pids, how):
    results = horovod.spark.run_elastic(
        train, (str(pids), 1, how), num_proc=2, min_num_proc=1, max_num_proc=2
    )
    assert (pids.parent / "happened").exists()
    assert results[0][2:] == (STEPS, float(STEPS))
    assert len(list(pids.iterdir())) >= 2


def test_reset_limit(spark, pids):
    with pytest.raises(RuntimeError, match="reset|limit|changes of membership"):
        horovod.spark.run_elastic(
            train, (str(pids), 1, raise_error), num_proc=2, min_num_proc=1, reset_limit=0
        )


def test_bad_numbers(spark):
    with pytest.raises(ValueError, match="between min_num_proc 3"):
        horovod.spark.run_elastic(lambda: None, num_proc=2, min_num_proc=3)
    with (
        pytest.warns(DeprecationWarning, match="max_np"),
        pytest.raises(ValueError, match="max_num_proc 1"),
    ):
        horovod.spark.run_elastic(lambda: None, num_proc=2, max_np=1)
