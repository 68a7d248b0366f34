# SPDX-License-Identifier: Apache-2.0
"""Ranks that stop early, die or disagree: clear errors on the others, and no hang."""

import pytest

EARLY = """
import horovod.torch as hvd, sys, torch
hvd.init()
model = torch.nn.Linear(2, 1)
optimizer = hvd.DistributedOptimizer(
    torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
try:
    for step in range(10):
        if hvd.rank() == 1 and step == 3:
            {leave}
        optimizer.zero_grad()
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
except hvd.HorovodInternalError as error:
    print("rank", hvd.rank(), "caught:", error, flush=True)
    sys.exit(0)
print("rank", hvd.rank(), "ended", flush=True)
"""


@pytest.mark.parametrize("ranks", [2, 3])
def test_early_stopping_on_one_rank(run_script, ranks):
    result = run_script(EARLY.format(leave="break"), ranks)
    assert "rank 1 ended" in result.stdout
    assert "rank 0 caught: Horovod has been shut down" in result.stdout
    assert "The first to shut down was rank 1 (" in result.stdout


@pytest.mark.parametrize("leave", ["raise KeyError('of the user')", "import os; os._exit(7)"])
def test_a_rank_that_dies(run_script, leave):
    result = run_script(EARLY.format(leave=leave), 2)
    assert result.returncode != 0
    if "KeyError" in leave:
        assert "of the user" in result.stdout


@pytest.mark.parametrize("leave", ["sys.exit(3)", "raise KeyError('of the user')"])
def test_the_culprit_is_reported_not_its_victims(run_script, leave):
    source = f"""
import horovod.torch as hvd, sys, torch
hvd.init()
for step in range(100):
    if hvd.rank() == 1 and step == 3:
        {leave}
    hvd.allreduce(torch.ones(1), name="x")
"""
    result = run_script(source, 3)
    assert result.returncode == (3 if "exit" in leave else 1)
    assert "Process name: 1\n" in result.stdout


def test_ranks_may_end_at_different_times(run_script):
    source = """
import time
from horovod.common.basics import HorovodBasics
basics = HorovodBasics(__file__, "any")
basics.init()
rank = basics.rank()
basics.shutdown()
time.sleep(1.5 * rank)
print("rank", rank, "ended", flush=True)
"""
    result = run_script(source, 2)
    assert result.returncode == 0, result.stdout
    assert "rank 1 ended" in result.stdout


def test_interleaved_names_are_reported(run_script):
    source = """
import horovod.torch as hvd, torch
hvd.init()
try:
    hvd.allreduce(torch.ones(2), name="only.on.%d" % hvd.rank())
except hvd.HorovodInternalError as error:
    print("caught", error, flush=True)
"""
    result = run_script(source, 2)
    assert result.stdout.count("caught Deadlock: every rank waits for others: ") == 2
    for rank in range(2):
        place = f"rank {rank} waits for allreduce.only.on.{rank} at script.py:5 in <module>"
        assert result.stdout.count(place) == 2


def test_deadlock_with_a_second_thread(run_script):
    """Another thread may still submit: only the time limit ends this one."""
    source = """
import threading
import horovod.torch as hvd, torch
hvd.init()
threading.Thread(target=threading.Event().wait, daemon=True).start()
try:
    hvd.allreduce(torch.ones(2), name="only.on.%d" % hvd.rank())
except hvd.HorovodInternalError as error:
    print("caught", error, flush=True)
"""
    env = {"HOROVOD_STALL_CHECK_TIME_SECONDS": "3", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "3"}
    result = run_script(source, 2, env)
    # Which of the two is past its limit first is a matter of luck; both ranks hear the same.
    assert "Missing ranks:" in result.stdout
    assert result.stdout.count("caught allreduce.only.on.") == 2


def test_examples_train(run_script):
    from pathlib import Path

    example = Path(__file__).resolve().parents[3] / "examples/pytorch/pytorch_mnist.py"
    source = (
        "import runpy, sys\n"
        "sys.argv = ['pytorch_mnist.py', '--epochs', '2', '--single']\n"
        f"runpy.run_path({str(example)!r}, run_name='__main__')\n"
    )
    result = run_script(source, 2)
    assert result.returncode == 0, result.stdout
    assert "test accuracy on 2 rank(s)" in result.stdout
    difference = float(result.stdout.rsplit("loss curves:", 1)[1].split()[0])
    assert difference < 1e-4


def test_run_function(tmp_path):
    import horovod

    def work(a, b=0):
        import horovod.torch as hvd
        import torch

        hvd.init()
        return hvd.rank(), float(hvd.allreduce(torch.tensor(float(a + b)), op=hvd.Sum))

    assert horovod.run(work, args=(1,), kwargs={"b": 2}, np=2) == [(0, 6.0), (1, 6.0)]
