# SPDX-License-Identifier: Apache-2.0
"""Workers that are lost, hang, leave and come, in jobs without a framework; sums are checked."""

import os
import signal
import time

import pytest
from counting_replay import replay
from jobs import Hosts

FOUR = ("-np", "4", "--min-np", "2", "--max-np", "4", "-H", "localhost:4")


def finish(job):
    """The job succeeds, and its total is what the same membership gives in one process."""
    job.succeed()
    step, total, size, sizes = job.result()
    assert step == len(sizes) and total == replay(sizes)
    return size, sizes


def test_without_a_fault_nothing_is_reset(start):
    job = start("counting.py", *FOUR)
    assert finish(job) == (4, [4] * 60)
    assert not [line for line in job.lines("log.*") if line[0] == "reset"]


@pytest.mark.parametrize("launcher", [["-np", "3"], ["-np", "1"]])
def test_without_an_elastic_launcher(start, launcher):
    """The same script under plain horovodrun: it never resets."""
    job = start("counting.py", *launcher, env={"TEST_STEPS": "5"})
    count = int(launcher[1])
    assert finish(job) == (count, [count] * 5)


# A worker that is lost is replaced on the same host, and the job goes on with fewer in between.
LOST = {
    "killed": ("kill:step:10:1", True),
    "killed_rank_0": ("kill:step:10:0", False),
    "killed_after_the_collective": ("kill:applied:10:2", True),
    "two_at_once": ("kill:step:10:1 kill:step:10:3", False),
    "exception": ("raise:step:10:1", True),
    "killed_in_a_reset": ("kill:step:10:3 kill:reset:10:1", False),
    "killed_in_a_sync": ("kill:step:10:3 kill:sync:10:1", True),
    "source_killed_in_a_sync": ("kill:step:10:3 kill:sync:10:0", False),
    "newcomer_killed_in_its_sync": ("kill:step:10:3 kill:new:0:3", True),
    "killed_in_the_first_sync": ("kill:sync:0:2", True),
}


@pytest.mark.parametrize("faults, rollback", LOST.values(), ids=LOST.keys())
def test_lost_workers_are_replaced(start, faults, rollback):
    env = {"TEST_FAULTS": faults, "TEST_FINAL_SIZE": "4", "TEST_ROLLBACK": str(int(rollback))}
    job = start("counting.py", *FOUR, env=env)
    size, sizes = finish(job)
    assert size == 4
    assert len(list(job.folder.glob("fault.*"))) == len(faults.split())


def test_only_uncommitted_steps_are_repeated(start):
    env = {"TEST_FAULTS": "kill:step:17:1", "TEST_COMMIT_EVERY": "5"}
    job = start("counting.py", *FOUR, env=env)
    finish(job)
    resets = {int(line[1]) for line in job.lines("log.*") if line[0] == "reset"}
    # The first one follows the kill; the replacement comes in at a later commit.
    assert min(resets) == 15
    assert all(step % 5 == 0 for step in resets)


def test_without_rollback_only_the_failed_step_is_repeated(start):
    env = {"TEST_FAULTS": "kill:step:17:1", "TEST_COMMIT_EVERY": "5", "TEST_ROLLBACK": "0"}
    job = start("counting.py", *FOUR, env=env)
    finish(job)
    first = [int(line[1]) for line in job.lines("log.*") if line[0] == "reset"]
    assert 17 in first


def test_a_stopped_worker_is_evicted(start):
    env = {"TEST_FAULTS": "stop:step:10:1", "HOROVOD_HUNG_ERROR_SECONDS": "1"}
    size, sizes = finish(start("counting.py", *FOUR, env=env))
    assert 3 in sizes


@pytest.mark.parametrize("fault", ["term", "leave"])
def test_leaving_politely(start, fault):
    """The others repeat nothing; the one that leaves writes its checkpoint and exits with 0."""
    env = {"TEST_FAULTS": f"{fault}:step:10:1", "TEST_STEPS": "200"}
    job = start("counting.py", *FOUR, env=env)
    finish(job)
    ((step, total),) = job.lines("left.*")
    assert int(step) >= 11
    resets = [int(line[1]) for line in job.lines("log.*") if line[0] == "reset"]
    steps = [int(line[1]) for line in job.lines("log.*") if line[0] == "step" and line[2] == "0"]
    assert steps == sorted(set(steps)), "a step was repeated"
    assert int(step) in resets


def test_rank_0_leaves(start):
    env = {"TEST_FAULTS": "term:step:10:0", "TEST_STEPS": "100"}
    finish(start("counting.py", *FOUR, env=env))


def test_issue_4021_environment_and_process_sets(start):
    env = {"TEST_SETS": "1", "TEST_FAULTS": "kill:step:10:2 kill:step:12:1"}
    env["TEST_FINAL_SIZE"] = "4"
    options = ("-np", "4", "--min-np", "1", "--max-np", "4", "-H", "localhost:4")
    size, sizes = finish(start("counting.py", *options, env=env))
    assert size == 4


def test_discovery_adds_and_removes(start, tmp_path):
    """A host comes, the first one goes, another comes."""
    hosts = Hosts(tmp_path, "localhost:2")
    options = ("-np", "2", "--min-np", "1", "--max-np", "4")
    job = start(
        *("counting.py", *options, "--host-discovery-script", str(hosts.script)),
        env={"TEST_STEPS": "0"},
    )

    def is_world(count):
        def check():
            last = list(job.live().values())
            return len(last) == count and all(line[3] == str(count) for line in last)

        return check

    job.wait_until(is_world(2))
    hosts.set("localhost:2 127.0.0.1:2")
    job.wait_until(is_world(4))
    hosts.set("127.0.0.1:2")
    job.wait_until(is_world(2))
    hosts.set("127.0.0.1:2 localhost:1")
    job.wait_until(is_world(3))
    (job.folder / "finish").touch()
    size, sizes = finish(job)
    assert size == 3
    assert sizes[0] == 2 and 2 in sizes[sizes.index(4) :]
    assert len(job.lines("left.*")) == 2


def test_issue_3494_removed_below_the_minimum_and_added(start, tmp_path):
    """Survivors of a removal need no state, but a newcomer does: all of them sync."""
    hosts = Hosts(tmp_path, "localhost:1 127.0.0.1:1")
    options = ("-np", "2", "--min-np", "2", "--max-np", "2")
    job = start(
        *("counting.py", *options, "--host-discovery-script", str(hosts.script)),
        env={"TEST_STEPS": "0", "TEST_PAUSE_S": "0.05"},
    )
    job.wait_until(lambda: job.steps() > 3)
    before = set(job.live())
    hosts.set("localhost:1")
    time.sleep(2)  # the launcher looks once a second
    hosts.set("localhost:2")
    job.wait_until(
        lambda: set(job.live()) - before and all(v[3] == "2" for v in job.live().values())
    )
    (job.folder / "finish").touch()
    assert finish(job)[0] == 2


def test_issue_3197_a_change_before_the_first_sync_is_not_lost(start, tmp_path):
    hosts = Hosts(tmp_path, "localhost:2")
    options = ("-np", "2", "--min-np", "2", "--max-np", "3")
    job = start(
        *("counting.py", *options, "--host-discovery-script", str(hosts.script)),
        env={"TEST_STEPS": "2", "TEST_FAULTS": "notice:sync:0:0"},
    )
    job.wait_until(lambda: list(job.folder.glob("fault.*")))
    hosts.set("localhost:3")  # rank 0 waits until it is announced, and has no listener yet
    assert finish(job) == (3, [2, 3])


def test_a_job_that_cannot_go_on_fails_with_the_cause(start):
    env = {"TEST_FAULTS": "raise:step:10:1 raise:step:10:0"}
    options = ("-np", "2", "--min-np", "2", "--max-np", "2", "--reset-limit", "0")
    job = start("counting.py", *options, "-H", "localhost:2", env=env)
    assert job.wait() != 0
    assert "InjectedError: injected" in job.output
    assert job.left_behind() == []


@pytest.mark.parametrize("when", ["training", "waiting"])
def test_issue_2402_no_worker_outlives_the_launcher(start, when):
    """Also not one that waits for others that never come."""
    options = ("-np", "3", "--min-np", "3", "-H", "localhost:3")
    faults = {"TEST_FAULTS": "leave:step:5:0"} if when == "waiting" else {}
    job = start("counting.py", *options, env={"TEST_STEPS": "0", **faults})
    if when == "waiting":
        job.wait_until(lambda: list(job.folder.glob("fault.*")))
    else:
        job.wait_until(lambda: job.steps() > 3)
    os.kill(job.process.pid, signal.SIGKILL)
    job.process.wait()
    assert job.left_behind() == []


def test_kills_from_outside(start):
    job = start("counting.py", *FOUR, env={"TEST_STEPS": "0"})
    for _ in range(3):
        job.wait_until(
            lambda: len(job.live()) == 4 and all(v[3] == "4" for v in job.live().values())
        )
        os.kill(sorted(job.live())[0], signal.SIGKILL)
        goal = job.steps() + 5
        job.wait_until(lambda goal=goal: job.steps() >= goal)
    (job.folder / "finish").touch()
    finish(job)
