# SPDX-License-Identifier: Apache-2.0
"""Ranks that do something wrong: the others get an error that names it, in time; nothing hangs.

The ranks are plain processes, because every launcher ends the others when one fails.
"""

import socket
import subprocess
import sys
from pathlib import Path

import pytest
from launching import clean_environment

PROGRAM = Path(__file__).resolve().parent / "program_wrong.py"
DEADLINE_S = 200  # far more than the limits in the program, and less than what a hang takes


def free_port():
    with socket.socket() as listener:
        listener.bind(("localhost", 0))
        return listener.getsockname()[1]


def start(case, ranks):
    place = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "localhost", "MASTER_PORT": str(free_port())}
    return [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", str(PROGRAM), case],
            env=clean_environment({**place, "RANK": str(rank), "LOCAL_RANK": str(rank)}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(ranks)
    ]


def finish(processes, is_culprit_left=False):
    """(code, output) of each rank; a culprit that never ends is killed when the others have."""
    done = [None] * len(processes)
    try:
        for rank, process in enumerate(processes):
            if not (is_culprit_left and rank == 1):
                output = process.communicate(timeout=DEADLINE_S)[0]
                done[rank] = (process.returncode, output)
    finally:
        for process in processes:
            process.kill()
    return done


CASES = {  # ranks, and whether each of them must succeed
    "raises_and_goes_on": (True, True),
    "no_sync_alone": (True, True),
    "other_members": (True, True, True),
    "destroyed_in_flight": (True, True),
    "waits_in_threads": (True, True),
    "other_order": (True, True),
    "workers": (True, True),
    "bad_callback": (True, True),
    "unused_differ": (True, True),
    "raises_in_backward": (True, False),
}


@pytest.mark.parametrize("case", CASES)
def test_wrong(case):
    outcomes = finish(start(case, len(CASES[case])))
    for (code, output), is_good in zip(outcomes, CASES[case], strict=True):
        assert code == (0 if is_good else 1), outcomes
        assert not is_good or "ended after" in output, outcomes


def test_a_rank_that_is_stuck():
    code, output = finish(start("stuck", 2), is_culprit_left=True)[0]
    assert code == 0 and "Timed out" in output, output
