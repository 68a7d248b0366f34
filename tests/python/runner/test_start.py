# SPDX-License-Identifier: Apache-2.0
"""Ranks that are not started by horovodrun: mpirun, torchrun's and Slurm's variables, by hand.

Each rank initialises twice, because the second time the key has to be found again.
"""

import os
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import sys
from horovod.common.library import native
for life in range(2):
    native.init(None, [])
    place = (native.rank(), native.size(), native.local_rank(), native.local_size(),
             native.cross_rank(), native.cross_size())
    sys.stdout.write("<%d %d %d %d %d %d>\\n" % place)
    sys.stdout.flush()
    native.shutdown()
"""

PLACE = "<" + " ".join([r"(\d+)"] * 6) + ">"


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return str(path)


@pytest.fixture
def home(tmp_path, monkeypatch):
    folder = tmp_path / "home"
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    return folder


def places(text):
    """An mpirun may run lines of several ranks together, but not the words of one."""
    return sorted(tuple(map(int, found)) for found in re.findall(PLACE, text))


def start(program, ranks):
    """One process for each environment; they must all succeed. Returns their places."""
    processes = [
        subprocess.Popen(
            [sys.executable, program],
            env={**os.environ, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for variables in ranks
    ]
    results = [process.communicate(timeout=300) for process in processes]
    for process, (_, err) in zip(processes, results, strict=True):
        assert process.returncode == 0, err
    return places("".join(out for out, _ in results))


def twice(*expected):
    return sorted(expected * 2)


@pytest.mark.parametrize("wrapper", [[], ["sh", "-c", '"$@"; true', "sh"]], ids=["plain", "shell"])
@pytest.mark.parametrize("mpirun", ["mpirun.openmpi", "mpirun.mpich"])
def test_mpirun(mpirun, wrapper, program, home):
    if shutil.which(mpirun) is None:
        pytest.skip(f"{mpirun} is not installed")
    options = ["--allow-run-as-root", "--oversubscribe"] if "openmpi" in mpirun else []
    done = subprocess.run(
        [mpirun, *options, "-np", "3", *wrapper, sys.executable, program],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert places(done.stdout) == twice(*[(r, 3, r, 3, 0, 1) for r in range(3)])
    assert [p for p in home.iterdir() if p.name.startswith("key-")] == []


def torch_rank(rank, size, local_size, port=29471):
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(size),
        "LOCAL_RANK": str(rank % local_size),
        "LOCAL_WORLD_SIZE": str(local_size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_RUN_ID": "none",
    }


def test_torchrun_on_one_host(program, home):
    ranks = [torch_rank(r, 2, 2) for r in range(2)]
    assert start(program, ranks) == twice((0, 2, 0, 2, 0, 1), (1, 2, 1, 2, 0, 1))


def test_torchrun_across_hosts_with_a_shared_home(program, home):
    ranks = [torch_rank(r, 2, 1) for r in range(2)]
    assert start(program, ranks) == twice((0, 2, 0, 1, 0, 2), (1, 2, 0, 1, 1, 2))
    folder = home / ".horovod" / "keys"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("by", ["file", "environment"])
def test_torchrun_across_hosts_with_a_key(by, program, home, tmp_path):
    key = os.urandom(32).hex()
    path = tmp_path / "key"
    path.touch(mode=0o600)
    path.write_text(key)
    told = {"HOROVOD_KEY_FILE": str(path)} if by == "file" else {"HOROVOD_KEY": key}
    ranks = [{**torch_rank(r, 2, 1, port=29481), **told} for r in range(2)]
    assert start(program, ranks) == twice((0, 2, 0, 1, 0, 2), (1, 2, 0, 1, 1, 2))
    assert not (home / ".horovod").exists()


def test_what_a_killed_job_left_is_no_hindrance(program, home, tmp_path):
    """A file of the same name with another key and an address that nobody serves."""
    probe = subprocess.run(
        ["strace", "-f", "-e", "trace=openat,open", sys.executable, program],
        env={**os.environ, **torch_rank(1, 2, 2), "HOROVOD_GLOO_TIMEOUT_SECONDS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    names = [w for w in probe.stderr.split('"') if w.startswith(f"{home}/key-")]
    assert probe.returncode != 0 and names, probe.stderr[-2000:]
    stale = Path(names[0])
    stale.touch(mode=0o600)
    stale.write_text("11" * 32 + "\nunix:nobody-is-here\n")
    ranks = [torch_rank(r, 2, 2) for r in (1, 0)]
    assert start(program, ranks) == twice((0, 2, 0, 2, 0, 1), (1, 2, 1, 2, 0, 1))


def test_rank_zero_that_never_comes(program, home):
    done = subprocess.run(
        [sys.executable, program],
        env={**os.environ, **torch_rank(1, 2, 2), "HOROVOD_GLOO_TIMEOUT_SECONDS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode != 0
    assert "rank 0 has not been heard of" in done.stderr and str(home) in done.stderr


def test_no_key_from_a_launcher_of_ours(program, home):
    variables = {"HOROVOD_RANK": "0", "HOROVOD_SIZE": "2", "HOROVOD_RENDEZVOUS": "127.0.0.1:9"}
    done = subprocess.run(
        [sys.executable, program],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode != 0 and "HOROVOD_KEY_FILE" in done.stderr


def slurm_rank(rank, node, local_rank):
    return {
        "SLURM_PROCID": str(rank),
        "SLURM_STEP_NUM_TASKS": "3",
        "SLURM_LOCALID": str(local_rank),
        "SLURM_NODEID": str(node),
        "SLURM_STEP_TASKS_PER_NODE": "2,1",
        "SLURM_STEP_NODELIST": "n[1-2]",
        "SLURM_JOB_ID": "4711",
        "SLURM_STEP_ID": "0",
    }


def test_variables_of_slurm(program, home):
    ranks = [slurm_rank(0, 0, 0), slurm_rank(1, 0, 1), slurm_rank(2, 1, 0)]
    expected = twice((0, 3, 0, 2, 0, 2), (1, 3, 1, 2, 0, 1), (2, 3, 0, 1, 1, 2))
    assert start(program, ranks) == expected
