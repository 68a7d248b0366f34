# SPDX-License-Identifier: Apache-2.0
"""For all tests: the signals that programs are stopped by do what they usually do, and fixtures
that start programs on several ranks, with the real launcher and a deadline.

A shell that runs us in the background, and nohup, have us ignore some of them. What we start would
ignore them, too, and tests that stop it would wait for ever.

A file `ranks_*.py` is a pytest module that every rank runs from top to bottom; a rank that fails
stops, and the launcher ends the others.
"""

import signal
import sys
from pathlib import Path

import pytest

# Modules that the tests share. Not this folder itself: it holds folders named like frameworks.
sys.path.append(str(Path(__file__).resolve().parent / "shared"))

import launching  # noqa: E402

signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def ranks_env():
    """Variables that all ranks get; the folder of a framework overrides this."""
    return {}


@pytest.fixture
def run_ranks(request, ranks_env):
    """run_ranks(file, ranks, env) runs a module of tests on so many ranks; all must pass."""

    def run(name, ranks, env=None):
        launching.run_module(request.path.with_name(name), ranks, {**ranks_env, **(env or {})})

    return run


@pytest.fixture(scope="session")
def launch_ranks(ranks_env):
    """launch_ranks(ranks, command...) runs a command on so many ranks; gives its process."""

    def launch(ranks, *command, env=None, **options):
        return launching.launch(ranks, *command, env={**ranks_env, **(env or {})}, **options)

    return launch


@pytest.fixture
def run_script(tmp_path, launch_ranks):
    """run_script(source, ranks, ...) runs a Python script on so many ranks; returns the process."""

    def run(source, ranks, env=None, deadline_s=600):
        script = tmp_path / "script.py"
        script.write_text(source, encoding="utf-8")
        return launch_ranks(ranks, sys.executable, script, env=env, deadline_s=deadline_s)

    return run
