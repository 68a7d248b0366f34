# SPDX-License-Identifier: Apache-2.0
"""MPI as the control plane: plain mpirun with every MPI library there is, and mpi4py beside us."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

RANKS = Path(__file__).resolve().with_name("ranks_control.py")
SYSTEM_LIBS = Path("/usr/lib") / f"{os.uname().machine}-linux-gnu"
NO_SHM = {"HOROVOD_SHM_DISABLE": "1"}

pytestmark = pytest.mark.timeout(120)


def library(mpi):
    """The library that belongs to this mpirun."""
    folder = SYSTEM_LIBS if mpi.name.endswith("4") else Path(mpi.mpirun).parent.parent / "lib"
    names = {"openmpi4": "libmpi.so.40", "openmpi5": "libmpi.so.40", "mpich4": "libmpich.so.12"}
    return folder / names.get(mpi.name, "libmpi.so.12")


def mpirun(mpi, count, *case, env=None, timeout=90, before=()):
    command = [*before, sys.executable, RANKS, *map(str, case)]
    return subprocess.run(
        [mpi.mpirun, *mpi.many, "-np", str(count), *command],
        env={**os.environ, "WANT_SIZE": str(count), **(env or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def check_ok(result, count, each=None):
    """All ranks said `ok RANK SIZE`; `each`: the size of their worlds, if not `count`."""
    told = result.stdout + result.stderr
    assert result.returncode == 0, told
    said = sorted(re.findall(r"^ok (\d+) (\d+)$", result.stdout, re.MULTILINE))
    size = each or count
    assert said == sorted((str(i % size), str(size)) for i in range(count)), told


@pytest.fixture
def mpi4py_env(mpi):
    """What makes mpi4py use the library of this mpirun."""
    pytest.importorskip("mpi4py", exc_type=ImportError)
    if mpi.name == "mpich4":
        pytest.skip("mpi4py's wheel does not know Debian's MPICH")
    return {"MPI4PY_LIBMPI": str(library(mpi)), "LD_LIBRARY_PATH": str(library(mpi).parent)}


# ---- plain mpirun ----


@pytest.mark.parametrize("env", [{}, NO_SHM], ids=["shm", "mpi"])
def test_basics(mpi, env):
    check_ok(mpirun(mpi, 3, "basics", 1, env=env), 3)


def test_one_rank(mpi):
    check_ok(mpirun(mpi, 1, "basics", 1), 1)


def test_asked_for(mpi):
    check_ok(mpirun(mpi, 2, "basics", 1, env={"HOROVOD_CONTROLLER": "MPI"}), 2)


def test_collectives_of_mpi(mpi):
    check_ok(mpirun(mpi, 3, "basics", 1, env={"HOROVOD_CPU_OPERATIONS": "MPI"}), 3)


@pytest.mark.parametrize("late", [0, 2])
@pytest.mark.parametrize("env", [{}, NO_SHM], ids=["shm", "mpi"])
def test_caught_stall_ends_well(mpi, env, late, tmp_path):
    """All ranks live, so MPI is finalized: mpirun has nothing to complain about."""
    limits = {"HOROVOD_STALL_CHECK_TIME_SECONDS": "1", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "2"}
    result = mpirun(mpi, 3, "stalls", late, tmp_path / "caught", env={**env, **limits})
    check_ok(result, 3)
    told = re.findall(r"^caught: .*", result.stdout, re.MULTILINE)
    assert len(told) == 3, result.stdout
    assert all(f"rank {late} " in line for line in told), told


def test_both_planes_are_told(mpi):
    result = mpirun(mpi, 2, "numbers", env={"HOROVOD_CPU_OPERATIONS": "gloo"})
    check_ok(result, 2)
    assert re.findall(r"numbers \d 2 (\d) (\d)", result.stdout) == [("1", "1")] * 2


@pytest.mark.parametrize("env", [{}, NO_SHM], ids=["shm", "mpi"])
def test_no_threads(mpi, env):
    """Then the engine's thread alone calls MPI. (A library may offer more than it is asked for.)"""
    result = mpirun(mpi, 2, "numbers", env={**env, "HOROVOD_MPI_THREADS_DISABLE": "1"})
    check_ok(result, 2)
    if mpi.name.startswith("mpich"):
        env = {**env, "HOROVOD_MPI_THREADS_DISABLE": "1"}
        check_ok(mpirun(mpi, 2, "basics", 0, env=env), 2)


def test_without_mpi(mpi):
    result = mpirun(mpi, 2, "numbers", env={"HOROVOD_CONTROLLER": "gloo"})
    check_ok(result, 2)
    assert re.findall(r"numbers \d 2 (\d) (\d)", result.stdout) == [("0", "1")] * 2


def test_our_variables_win(mpi):
    """A launcher of ours inside mpirun's job: its numbers count."""
    env = {"HOROVOD_RANK": "0", "HOROVOD_SIZE": "1"}
    result = mpirun(mpi, 2, "numbers", env=env)
    check_ok(result, 2, each=1)
    assert re.findall(r"numbers 0 1 (\d) (\d)", result.stdout) == [("0", "1")] * 2


def test_lists_of_ranks(mpi):
    check_ok(mpirun(mpi, 4, "ranks_given"), 4)


def test_standard_interface(mpi):
    """MPICH 5 also has the binary interface that MPI 5 gives to all libraries."""
    path = library(mpi).with_name("libmpi_abi.so.1")
    if not path.exists() or mpi.name != "mpich5":
        pytest.skip("no libmpi_abi.so there")
    for env in ({}, NO_SHM, {"HOROVOD_CPU_OPERATIONS": "mpi"}):
        env = {**env, "HOROVOD_MPI_LIBRARY": str(path)}
        check_ok(mpirun(mpi, 2, "basics", 1, env=env), 2)


# ---- what does not fit ----


def test_not_found(mpi):
    """Named or demanded, it must be there."""
    gone = {"HOROVOD_MPI_LIBRARY": "/nowhere/libmpi.so"}
    for env in (gone, {**gone, "HOROVOD_CONTROLLER": "mpi"}):
        result = mpirun(mpi, 1, "init_fails", env=env)
        assert result.returncode != 0
        assert "/nowhere/libmpi.so (named by HOROVOD_MPI_LIBRARY)" in result.stdout
        assert "No usable MPI library" in result.stdout


def test_unusable(mpi, tmp_path):
    """What can't be loaded is done without, unless it was demanded; in a mount namespace of each
    rank every MPI library is an empty file."""
    hide = tmp_path / "hide"
    paths = {library(mpi), *SYSTEM_LIBS.glob("libmpi*.so.*[0-9]")}
    folder = library(mpi).parent
    paths |= {*folder.glob("libmpi.so.*"), *folder.glob("libmpi_abi.so.*")}
    binds = "".join(f"mount --bind /dev/null {path.resolve()}\n" for path in sorted(paths))
    hide.write_text(f'#!/bin/sh\nset -e\n{binds}exec "$@"\n')
    hide.chmod(0o755)
    if subprocess.run(["unshare", "-m", hide, "true"], check=False).returncode != 0:
        pytest.skip("mount namespaces need privileges")
    before = ["unshare", "-m", hide]
    result = mpirun(mpi, 2, "numbers", env={"HOROVOD_LOG_LEVEL": "info"}, before=before)
    check_ok(result, 2)
    told = result.stdout + result.stderr
    assert "Doing without MPI: No usable MPI library was found, although this process" in told
    assert f"{library(mpi)} (of the launcher)" in told
    assert re.findall(r"numbers \d 2 (\d) (\d)", result.stdout) == [("0", "1")] * 2
    result = mpirun(mpi, 1, "init_fails", env={"HOROVOD_CONTROLLER": "mpi"}, before=before)
    assert result.returncode != 0
    assert "No usable MPI library" in result.stdout


def test_not_a_library(mpi):
    wrong = {"HOROVOD_MPI_LIBRARY": "libm.so.6", "HOROVOD_CONTROLLER": "mpi"}
    result = mpirun(mpi, 1, "init_fails", env=wrong)
    assert "lacks MPI_Init_thread" in result.stdout


def test_launcher_and_library_do_not_match(mpi):
    other = SYSTEM_LIBS / ("libmpich.so.12" if mpi.is_open else "libmpi.so.40")
    if not other.exists():
        pytest.skip(f"no {other}")
    result = mpirun(mpi, 2, "init_fails", env={"HOROVOD_MPI_LIBRARY": str(other)})
    assert result.returncode != 0
    said = [line for line in result.stdout.splitlines() if line.startswith("failed:")]
    assert said, result.stdout + result.stderr
    variable = "OMPI_COMM_WORLD_SIZE" if mpi.is_open else "PMI_SIZE"
    for word in (f"started 2 processes ({variable})", str(other), "each of them is alone",
                 "HOROVOD_CONTROLLER=gloo"):  # fmt: skip
        assert word in said[0]
    assert ("MPICH 4" if mpi.is_open else "Open MPI v4") in said[0]


# ---- failures ----


@pytest.mark.parametrize("env", [{}, NO_SHM], ids=["shm", "mpi"])
def test_killed_rank_ends_the_job(mpi, env):
    result = mpirun(mpi, 3, "killed", env=env, timeout=60)
    told = result.stdout + result.stderr
    assert result.returncode != 0
    assert "no error" not in told
    assert re.search(r"signal:? 9|SIGKILL|Killed|exit code: 9", told, re.I), told


@pytest.mark.parametrize("env", [{}, NO_SHM], ids=["shm", "mpi"])
def test_rank_that_leaves_ends_the_others(mpi, env):
    result = mpirun(mpi, 3, "leaves", env=env, timeout=60)
    assert result.returncode != 0
    assert "no error" not in result.stdout


# ---- mpi4py ----


@pytest.mark.parametrize("env", [{}, NO_SHM], ids=["shm", "mpi"])
def test_mixed_with_mpi4py(mpi, mpi4py_env, env):
    check_ok(mpirun(mpi, 3, "mixed", env={**mpi4py_env, **env}), 3)


@pytest.mark.parametrize("env", [{}, NO_SHM], ids=["shm", "mpi"])
def test_split_communicators(mpi, mpi4py_env, env):
    check_ok(mpirun(mpi, 4, "split", env={**mpi4py_env, **env}), 4)


def test_sets_of_communicators(mpi, mpi4py_env):
    check_ok(mpirun(mpi, 4, "sets", env=mpi4py_env), 4)


def test_initialised_without_threads(mpi, mpi4py_env):
    result = mpirun(mpi, 2, "below_multiple", env={**mpi4py_env, **NO_SHM})
    check_ok(result, 2)
    if mpi.name.startswith("mpich"):
        assert "without support for several threads" in result.stdout + result.stderr
