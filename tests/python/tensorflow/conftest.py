# SPDX-License-Identifier: Apache-2.0
"""Start the files `ranks_*.py` on several ranks, with the real launcher and a deadline.

Each of those files is a pytest module that every rank runs from top to bottom; a rank that fails
stops, and the launcher ends the others. Without TensorFlow the whole folder is left out.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
DEADLINE_S = 280

if importlib.util.find_spec("tensorflow") is None:
    collect_ignore_glob = ["*"]


def find_launcher():
    beside = Path(sys.executable).parent / "horovodrun"
    found = str(beside) if beside.exists() else shutil.which("horovodrun")
    if found is None:
        pytest.fail("horovodrun is not installed beside this Python, nor in PATH")
    return found


def clean_environment(env=None):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("HOROVOD_")}
    environment.update({"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"})
    environment.update({"OMP_NUM_THREADS": "1", "PYTHONFAULTHANDLER": "1", **(env or {})})
    return environment


def launch(ranks, *command, env=None, deadline_s=DEADLINE_S):
    """Run a command on some ranks; returns the finished process with its output as text."""
    return subprocess.run(
        [find_launcher(), "-np", str(ranks), *(str(part) for part in command)],
        env=clean_environment(env),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=deadline_s,
        check=False,
    )


@pytest.fixture
def run_ranks():
    """run_ranks(file, ranks, env) runs a module of tests on so many ranks; all must pass."""

    def run(name, ranks, env=None):
        options = ["-q", "-x", "--no-header", "-p", "no:cacheprovider", "-o", "timeout=120"]
        result = launch(ranks, sys.executable, "-m", "pytest", *options, HERE / name, env=env)
        assert result.returncode == 0, f"{name} on {ranks} ranks:\n{result.stdout[-12000:]}"

    return run


@pytest.fixture(scope="session")
def launch_ranks():
    """launch_ranks(ranks, command...) as launch() above."""
    return launch


@pytest.fixture
def start_ranks():
    """start_ranks(ranks, command...) starts a job and gives its process; it ends with the test."""
    processes = []

    def start(ranks, *command):
        process = subprocess.Popen(
            [find_launcher(), "-np", str(ranks), *(str(part) for part in command)],
            env=clean_environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        processes.append(process)
        return process

    yield start
    for process in processes:
        process.kill()


@pytest.fixture
def run_alone():
    """run_alone(script, arguments...) runs Python without Horovod in reach; returns its output."""

    def run(script, *arguments):
        blocker = "import sys; sys.modules['horovod'] = None\n"
        result = subprocess.run(
            [sys.executable, "-c", blocker + script, *map(str, arguments)],
            env=clean_environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
        assert result.returncode == 0, result.stdout[-8000:]
        return result.stdout

    return run
