# SPDX-License-Identifier: Apache-2.0
"""A real training under real launchers: `horovodrun --mpi`, plain mpirun, and the field's options.

The figures must not depend on how the ranks were started: every way ends with the same weights as
plain horovodrun, bit for bit.
"""

import os
import re
import signal
import sys
from pathlib import Path

import pytest
from launching import run_apart

TRAIN = Path(__file__).resolve().parent.parent / "slurm" / "train.py"
PYTHON = sys.executable
LINE = r"<(\d+) (\d+) (\d+) (\d+) (\d+) (\d+) (\w+)>"


def ranks(text):
    found = [m.groups() for m in re.finditer(LINE, text)]
    return sorted(tuple(map(int, f[:6])) for f in found), {f[6] for f in found}


def one_host(size):
    return [(r, size, r, size, 0, 1) for r in range(size)]


def launch(*command, env=None, **options):
    return run_apart(command, {**os.environ, **(env or {})}, **options)


@pytest.fixture(scope="module")
def weights():
    """What plain horovodrun gives, by number of ranks and the way the bytes go."""
    known = {}

    def find(horovodrun, size, env=()):
        key = (size, tuple(sorted(dict(env).items())))
        if key not in known:
            done = launch(horovodrun, "-np", size, PYTHON, TRAIN, env=dict(env))
            places, known[key] = ranks(done.stdout)
            assert places == one_host(size) and len(known[key]) == 1
        return known[key]

    return find


# ---- the same numbers ----


@pytest.mark.parametrize("size", [1, 2, 4])
def test_mpirun_gives_the_same_numbers(mpi, horovodrun, weights, size):
    done = launch(mpi.mpirun, *mpi.many, "-np", size, PYTHON, TRAIN)
    places, hashes = ranks(done.stdout)
    assert places == one_host(size)
    assert hashes == weights(horovodrun, size)


@pytest.mark.parametrize(
    "env",
    [
        {"HOROVOD_CPU_OPERATIONS": "mpi"},
        {"HOROVOD_SHM_DISABLE": "1"},
        {"HOROVOD_SHM_DISABLE": "1", "HOROVOD_CPU_OPERATIONS": "mpi"},
        {"HOROVOD_CONTROLLER": "gloo"},
    ],
    ids=["mpi-collectives", "mpi-messages", "mpi-both", "without-mpi"],
)
def test_two_ranks_give_the_same_numbers_by_every_way(mpi, horovodrun, weights, env):
    """A sum of two does not depend on the order."""
    done = launch(mpi.mpirun, *mpi.many, "-np", 2, PYTHON, TRAIN, env=env)
    places, hashes = ranks(done.stdout)
    assert places == one_host(2)
    assert hashes == weights(horovodrun, 2)


def test_a_second_life(mpi):
    done = launch(mpi.mpirun, *mpi.many, "-np", 2, PYTHON, TRAIN, env={"TRAIN_LIVES": "3"})
    assert ranks(done.stdout)[0] == sorted(one_host(2) * 3)


# ---- horovodrun --mpi ----


def test_horovodrun_mpi(mpi, horovodrun, weights, tmp_path):
    path = {"PATH": mpi.path(tmp_path)}
    done = launch(horovodrun, "--mpi", "-np", 2, "-H", "localhost:2", PYTHON, TRAIN, env=path)
    places, hashes = ranks(done.stdout)
    assert places == one_host(2) and hashes == weights(horovodrun, 2)
    prefix = r"\[1,1\]<stdout>: ?<1 2" if mpi.is_open else r"\[1\] <1 2"
    assert re.search(prefix, done.stdout), done.stdout


def test_horovodrun_mpi_arguments(mpi, horovodrun, tmp_path):
    """--mpi-args, --binding-args, --tcp and settings all reach the ranks."""
    probe = tmp_path / "probe.py"
    probe.write_text(
        "import os, sys\n"
        "from horovod.common.library import native\n"
        "native.init(None, []); native.shutdown()\n"
        "names = ('HOROVOD_CACHE_CAPACITY', 'FROM_MPI_ARGS', 'PLAIN')\n"
        "sys.stdout.write(' '.join(os.environ[name] for name in names) + '\\n')\n"
    )
    give = "-x FROM_MPI_ARGS=yes" if mpi.is_open else "-genv FROM_MPI_ARGS yes"
    bind = "--bind-to none --map-by slot" if mpi.is_open else "-bind-to none"
    done = launch(
        *(horovodrun, "--mpi", "-np", 2, "-H", "localhost:2", "--cache-capacity", 77, "--tcp"),
        *(f"--mpi-args={give}", f"--binding-args={bind}", PYTHON, probe),
        env={"PATH": mpi.path(tmp_path), "PLAIN": "1"},
    )
    assert done.stdout.count("77 yes 1") == 2, done.stdout + done.stderr


def test_exit_code_comes_through(mpi, horovodrun, tmp_path):
    done = launch(
        *(horovodrun, "--mpi", "-np", 2, "-H", "localhost:2"),
        *(PYTHON, "-c", "import sys; sys.exit(3)"),
        env={"PATH": mpi.path(tmp_path)},
        check=False,
    )
    assert done.returncode == 3, done.stderr


# ---- recipes of the field ----


def test_recipe_with_a_host_file(mpi, tmp_path):
    hosts = tmp_path / "hosts"
    hosts.write_text("localhost slots=2\n" if mpi.is_open else "localhost:2\n")
    option = "--hostfile" if mpi.is_open else "-f"
    allow = ["--allow-run-as-root"] if mpi.is_open else []
    done = launch(mpi.mpirun, *allow, "-np", 2, option, hosts, PYTHON, TRAIN)
    assert ranks(done.stdout)[0] == one_host(2)


def test_recipe_with_options(mpi, tmp_path):
    """The line that the original's guide gave to mpirun users; version 5 wants two dashes there."""
    if not mpi.is_open:
        pytest.skip("options of Open MPI")
    dash = "--" if mpi.name == "openmpi5" else "-"
    done = launch(
        *(mpi.mpirun, "--allow-run-as-root", "-np", 2, "-H", "localhost:2"),
        *(f"{dash}bind-to", "none", f"{dash}map-by", "slot", "-x", "NCCL_DEBUG=INFO"),
        *(
            "-x",
            "LD_LIBRARY_PATH",
            "-x",
            "PATH",
            "-x",
            "PYTHONPATH",
            "-mca",
            "pml",
            "ob1",
            "-mca",
            "btl",
            "^openib",
        ),
        *(PYTHON, TRAIN),
        env={"LD_LIBRARY_PATH": os.environ.get("LD_LIBRARY_PATH", "")},
    )
    assert ranks(done.stdout)[0] == one_host(2)


# ---- the end of a rank ----


@pytest.mark.parametrize("operations", ["native", "mpi"])
def test_a_killed_rank_ends_the_job_and_is_named(mpi, operations):
    env = {"TRAIN_DIE": "1", "TRAIN_STEPS": "1000000"}
    if operations == "mpi":
        env["HOROVOD_CPU_OPERATIONS"] = "mpi"
    done = launch(mpi.mpirun, *mpi.many, "-np", 2, PYTHON, TRAIN, env=env, check=False)
    assert done.returncode != 0
    assert ranks(done.stdout)[0] == []
    text = done.stdout + done.stderr
    # The launcher ends the others; whoever is first, the rank or its signal is told.
    killed = f"signal {signal.SIGKILL:d}|KILLED|Killed|rank 1"
    assert re.search(killed, text), text
