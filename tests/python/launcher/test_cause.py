# SPDX-License-Identifier: Apache-2.0
"""Which rank is reported when several fail: the one that began it, whichever exits first.

The ranks are real: they call hvd.init() and reduce until one of them fails in its own way."""

import re
import sys

import pytest

pytest.importorskip("horovod")

RANK = """
import os, signal, sys, time
import numpy as np
from horovod.common.arrays import Arrays
from horovod.common.basics import HorovodBasics
from horovod.common.exceptions import HorovodInternalError
from horovod.common.library import native

FAILED = (native.StatusError, HorovodInternalError)
arrays = Arrays()

basics = HorovodBasics(__file__, "any")
basics.init()
rank, size = basics.rank(), basics.size()

def reduce(step):
    arrays.same_shape(native.ALLREDUCE, [np.ones(4)], f"x{step % 3}")

def work(steps=1000000):
    for step in range(steps):
        reduce(step)

def alone(culprit, fail, steps=5):
    work(steps)
    if rank == culprit:
        fail()
    work()

class Slow:
    # A rank whose interpreter takes its time to end: its peers exit long before it does.
    def __del__(self, sleep=time.sleep):
        sleep(SECONDS)

SECONDS = 0.5
"""
# The culprit calls sys.exit() and is slow to end; the others see the error and exit at once.
SLOW_CULPRIT = """
keep = Slow() if rank == {culprit} else None
try:
    alone({culprit}, lambda: sys.exit({code}))
except FAILED:
    os._exit({of_others})
"""


@pytest.fixture
def program(run, tmp_path):
    """Runs this code on `ranks` ranks after RANK."""

    def start(code, ranks, *args, **kwargs):
        path = tmp_path / "rank.py"
        path.write_text(RANK + code)
        kwargs.setdefault("timeout", 120)
        return run("-np", ranks, *args, sys.executable, path, **kwargs)

    return start


def culprit(result):
    """(rank, how it ended) of the report's first line, which must be there once."""
    found = re.findall(r"^horovodrun: rank (\d+) on \S+ (.*)$", result.stderr, re.MULTILINE)
    assert len(found) == 1, result.stderr
    return int(found[0][0]), found[0][1]


# The survivors catch the error and are gone with their own code at once, while the culprit's
# interpreter is still busy ending.
QUICK = """
keep = Slow()
try:
    alone({rank}, lambda: {fail})
except {caught}:
    if rank != {rank}:
        os._exit(1)
    raise
"""


@pytest.mark.parametrize("ranks", [2, 3, 16])
def test_exit_3_while_survivors_exit_first(program, ranks):
    code = QUICK.format(rank=ranks - 1, fail="sys.exit(3)", caught="FAILED")
    result = program(code, ranks)
    assert culprit(result)[0] == ranks - 1
    assert "exited with code 3" in culprit(result)[1]
    assert result.returncode == 3
    assert f"Process name: {ranks - 1}\nExit code: 3" in result.stderr


def test_exit_3_of_rank_0_while_survivors_exit_first(program):
    code = QUICK.format(rank=0, fail="sys.exit(3)", caught="FAILED")
    result = program(code, 3)
    assert (culprit(result)[0], result.returncode) == (0, 3)


def test_exception_while_survivors_exit_first(program):
    code = QUICK.format(rank=1, fail="{}['of the user']", caught="FAILED")
    result = program(code, 3)
    assert (culprit(result)[0], result.returncode) == (1, 1)
    tail = result.stderr.split("Last lines of rank 1:")[1]
    assert "KeyError: 'of the user'" in tail


def test_killed_while_survivors_exit_first(program):
    code = QUICK.format(rank=1, fail="os.kill(os.getpid(), signal.SIGKILL)", caught="FAILED")
    result = program(code, 3)
    assert culprit(result)[0] == 1
    assert "was killed by signal 9 (SIGKILL)" in culprit(result)[1]
    assert result.returncode == 137


def test_every_rank_raises(program):
    """Nobody catches anything: the culprit's exit and the survivors' race."""
    result = program("alone(2, lambda: sys.exit(3))", 4)
    assert (culprit(result)[0], result.returncode) == (2, 3)


def test_culprit_without_goodbye(program):
    """os._exit() runs no handler, so the others only see the connections close."""
    result = program("alone(1, lambda: os._exit(9))", 3)
    assert (culprit(result)[0], result.returncode) == (1, 9)


def test_two_ranks_fail_one_after_the_other(program):
    """Rank 2 fails by itself, and rank 1 fails in its own way when it sees the error."""
    code = SLOW_CULPRIT.format(culprit=2, code=3, of_others="{0: 1, 1: 5}[rank]")
    result = program(code, 3)
    assert (culprit(result)[0], result.returncode) == (2, 3)


def test_two_ranks_fail_on_their_own(program):
    """Ranks 1 and 2 exit at the same step: one of them is the culprit, never rank 0."""
    code = """
work(5)
if rank > 0:
    os._exit(10 + rank)
try:
    work()
except FAILED:
    os._exit(1)
"""
    result = program(code, 3)
    rank, how = culprit(result)
    assert rank in (1, 2)
    assert result.returncode == 10 + rank and f"exited with code {10 + rank}" in how


def test_rank_that_finishes_early(program):
    """Exit code 0 while others wait: it is named as the cause, and the job has failed."""
    result = program(SLOW_CULPRIT.format(culprit=1, code=0, of_others=4), 3)
    rank, how = culprit(result)
    assert rank == 1 and "exited with code 0" in how and "while other ranks needed it" in how
    assert result.returncode == 4
    assert re.search(r"Process name: [02]\nExit code: 4", result.stderr)


def test_own_failure_after_another_rank_finished(program):
    """Rank 1 leaves when all is reduced; what rank 0 does afterwards is its own affair."""
    code = """
work(5)
if rank == 0:
    while not os.path.lexists("pid"):
        time.sleep(0.01)
    while os.path.exists("/proc/" + os.readlink("pid")):
        time.sleep(0.01)  # until the agent has reaped it
    sys.exit(6)
os.symlink(str(os.getpid()), "pid")
"""
    result = program(code, 2)
    assert (culprit(result)[0], result.returncode) == (0, 6)
    assert "had finished normally" in result.stderr


def test_survivors_go_on_for_seconds(program):
    """They caught the error and save a checkpoint; the culprit is reported all the same."""
    code = """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
try:
    alone(1, lambda: sys.exit(3))
except FAILED:
    time.sleep(0.5)
    print("saved", flush=True)
    sys.exit(0)
"""
    result = program(code, 3)
    assert (culprit(result)[0], result.returncode) == (1, 3)
    assert result.stdout.count("saved") == 2


def test_stopped_rank_is_named(program):
    """It never exits by itself: the report says what the others saw, and it is ended."""
    code = """
keep = None
try:
    alone(1, lambda: os.kill(os.getpid(), signal.SIGSTOP))
except FAILED:
    os._exit(4)
"""
    result = program(code, 3, env={"HOROVOD_HUNG_ERROR_SECONDS": "4", "HOROVOD_PLAN_DISABLE": "1"})
    rank, how = culprit(result)
    assert rank == 1 and "no sign of life" in how
    assert result.returncode == 4


def test_on_two_machines(program, sshd):
    """The culprit is there, the survivor here, over ssh and TCP."""
    code = QUICK.format(rank=1, fail="sys.exit(3)", caught="FAILED")
    result = program(code, 2, "-H", f"localhost:1,{sshd.host}:1", *sshd.options, env=sshd.env())
    assert (culprit(result)[0], result.returncode) == (1, 3)
    assert f"rank 1 on {sshd.host} exited with code 3" in result.stderr


def test_on_two_machines_the_other_way(program, sshd):
    """The culprit is here, the survivors there."""
    code = QUICK.format(rank=0, fail="sys.exit(3)", caught="FAILED")
    result = program(code, 3, "-H", f"localhost:1,{sshd.host}:2", *sshd.options, env=sshd.env())
    assert (culprit(result)[0], result.returncode) == (0, 3)


def test_descriptors_closed_by_a_wrapper(program, run, tmp_path):
    """A wrapper that closes what it inherits does not hide who blames whom."""
    path = tmp_path / "rank.py"
    path.write_text(RANK + QUICK.format(rank=1, fail="sys.exit(3)", caught="FAILED"))
    wrapper = "import subprocess, sys; sys.exit(subprocess.run(sys.argv[1:]).returncode)"
    result = run("-np", 2, sys.executable, "-c", wrapper, sys.executable, path, timeout=120)
    assert (culprit(result)[0], result.returncode) == (1, 3)
