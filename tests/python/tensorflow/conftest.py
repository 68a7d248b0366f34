# SPDX-License-Identifier: Apache-2.0
"""Ranks that use the processor only. Without TensorFlow the whole folder is left out."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import launching
import pytest
from launching import TENSORFLOW, clean_environment, job

sys.path.append(str(Path(__file__).resolve().parent))  # modules that the files of ranks share

if importlib.util.find_spec("tensorflow") is None:
    collect_ignore_glob = ["*"]


@pytest.fixture(scope="session")
def ranks_env():
    return TENSORFLOW


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
