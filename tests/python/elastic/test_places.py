# SPDX-License-Identifier: Apache-2.0
"""hvd.elastic under launchers that do not replace workers: it works, and never resets."""

import shutil
import sys
from pathlib import Path

import pytest
from launching import job, run

PROGRAM = Path(__file__).resolve().parent / "never_resets.py"
OPEN_MPI = ["--allow-run-as-root", "--oversubscribe"]
STARTS = {
    "alone": (1, []),
    "horovodrun": (2, None),
    "mpirun.openmpi": (2, ["mpirun.openmpi", *OPEN_MPI, "-n", "2"]),
    "mpirun.mpich": (2, ["mpirun.mpich", "-n", "2"]),
}


def start(name, *arguments):
    ranks, words = STARTS[name]
    if words and shutil.which(words[0]) is None:
        pytest.skip(f"there is no {words[0]} here")
    command = [sys.executable, str(PROGRAM), *arguments]
    return ranks, run(job(ranks, *command) if words is None else [*words, *command], None, 300)


@pytest.mark.parametrize("name", STARTS)
def test_it_trains_and_never_resets(name):
    ranks, result = start(name)
    assert result.returncode == 0, result.stdout
    for rank in range(ranks):
        assert f"rank {rank} of {ranks} is done" in result.stdout, result.stdout
    assert "reset" not in result.stdout


@pytest.mark.parametrize("name", ["horovodrun", "mpirun.openmpi"])
def test_a_rank_that_fails_ends_the_job(name):
    _, result = start(name, "fail")
    assert result.returncode != 0, result.stdout
    assert "is done" not in result.stdout
