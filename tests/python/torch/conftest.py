# SPDX-License-Identifier: Apache-2.0
"""Start the files `ranks_*.py` on several ranks, with the real launcher and a deadline.

Each of those files is a pytest module that every rank runs from top to bottom; a rank that fails
stops, and the launcher ends the others.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
DEADLINE_S = 280


def find_launcher():
    beside = Path(sys.executable).parent / "horovodrun"
    found = str(beside) if beside.exists() else shutil.which("horovodrun")
    if found is None:
        pytest.fail("horovodrun is not installed beside this Python, nor in PATH")
    return found


def launch(ranks, *command, env=None, deadline_s=DEADLINE_S):
    """Run a command on some ranks; returns the finished process with its output as text."""
    environment = dict(os.environ)
    for name in list(environment):
        if name.startswith("HOROVOD_"):
            del environment[name]
    environment.update({"OMP_NUM_THREADS": "1", "PYTHONFAULTHANDLER": "1", **(env or {})})
    return subprocess.run(
        [find_launcher(), "-np", str(ranks), *(str(part) for part in command)],
        env=environment,
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
        pytest_arguments = ["-q", "-x", "--no-header", "-p", "no:cacheprovider", "-o", "timeout=90"]
        result = launch(
            ranks, sys.executable, "-m", "pytest", *pytest_arguments, HERE / name, env=env
        )
        assert result.returncode == 0, f"{name} on {ranks} ranks:\n{result.stdout[-12000:]}"

    return run


@pytest.fixture
def run_script(tmp_path):
    """run_script(source, ranks, ...) runs a Python script on so many ranks; returns the process."""

    def run(source, ranks, env=None, deadline_s=120):
        script = tmp_path / "script.py"
        script.write_text(source, encoding="utf-8")
        return launch(ranks, sys.executable, script, env=env, deadline_s=deadline_s)

    return run
