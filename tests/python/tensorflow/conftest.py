# SPDX-License-Identifier: Apache-2.0
"""Start the files `ranks_*.py` on several ranks, with the real launcher and a deadline.

Each of those files is a pytest module that every rank runs from top to bottom; a rank that fails
stops, and the launcher ends the others. Without TensorFlow the whole folder is left out.
"""

import importlib.util
import subprocess
import sys
from pathlib import Path

import launching
import pytest
from launching import TENSORFLOW, clean_environment, job

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE))  # modules that the files of ranks share

if importlib.util.find_spec("tensorflow") is None:
    collect_ignore_glob = ["*"]


@pytest.fixture
def run_ranks():
    """run_ranks(file, ranks, env) runs a module of tests on so many ranks; all must pass."""

    def run(name, ranks, env=None):
        launching.run_module(HERE / name, ranks, {**TENSORFLOW, **(env or {})})

    return run


@pytest.fixture(scope="session")
def launch_ranks():
    """launch_ranks(ranks, command...) runs a command on so many ranks; gives its process."""

    def launch(ranks, *command, env=None, **options):
        return launching.launch(ranks, *command, env={**TENSORFLOW, **(env or {})}, **options)

    return launch


@pytest.fixture
def start_ranks():
    """start_ranks(ranks, command...) starts a job and gives its process; it ends with the test."""
    processes = []

    def start(ranks, *command):
        process = subprocess.Popen(
            job(ranks, *command),
            env=clean_environment(TENSORFLOW),
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
        command = [sys.executable, "-c", blocker + script, *map(str, arguments)]
        result = launching.run(command, TENSORFLOW)
        assert result.returncode == 0, result.stdout[-8000:]
        return result.stdout

    return run
