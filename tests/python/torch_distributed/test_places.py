# SPDX-License-Identifier: Apache-2.0
"""The backend between two machines, and under mpirun."""

import shutil
import sys
from pathlib import Path

import pytest
from launching import run
from namespaces import namespaces  # noqa: F401 - a fixture

HERE = Path(__file__).resolve().parent
PROGRAM = HERE / "program.py"
PYTEST = ["-m", "pytest", "-q", "-x", "--no-header", "-p", "no:cacheprovider"]


@pytest.mark.parametrize("ranks, case", [(2, "again"), (4, "early")])
def test_between_namespaces(namespaces, ranks, case):  # noqa: F811
    outputs = namespaces.run([sys.executable, "-W", "ignore", PROGRAM, case], ranks)
    assert all("ended well" in output for output in outputs), outputs


def test_groups_and_disagreements_between_namespaces(namespaces):  # noqa: F811
    command = [sys.executable, "-W", "ignore", *PYTEST, HERE / "ranks_groups.py"]
    outputs = namespaces.run(command, 4, {"PYTHONPATH": str(HERE)})
    assert all(" passed" in output for output in outputs), outputs


def test_random_programs_between_namespaces(namespaces):  # noqa: F811
    command = [sys.executable, "-W", "ignore", HERE / "random_program.py", "--seeds", "3"]
    namespaces.run(command, 4)


@pytest.mark.parametrize("mpirun", ["mpirun.openmpi", "mpirun.mpich"])
def test_mpirun(mpirun):
    if shutil.which(mpirun) is None:
        pytest.skip(f"there is no {mpirun} here")
    options = ["--allow-run-as-root", "--oversubscribe"] if "openmpi" in mpirun else []
    command = [mpirun, *options, "-n", "3", sys.executable, "-W", "ignore", PROGRAM, "again"]
    result = run([str(part) for part in command], None, 300)
    assert result.returncode == 0, result.stdout
    assert result.stdout.count("ended well") == 3, result.stdout


# ---- random programs ----


@pytest.mark.parametrize("way", ["memory", "network"])
def test_random_programs(way):
    from launching import launch

    env = {"HOROVOD_SHM_DISABLE": "1"} if way == "network" else None
    program = [sys.executable, "-W", "ignore", HERE / "random_program.py", "--seeds", "6"]
    result = launch(4, *program, env=env, deadline_s=400)
    assert result.returncode == 0, result.stdout[-8000:]
    assert result.stdout.count("6 seeds") == 4, result.stdout
