# SPDX-License-Identifier: Apache-2.0
"""Start the files `ranks_*.py` on several ranks, with the real launcher and a deadline."""

import sys
from pathlib import Path

import pytest
from launching import launch, run_module

HERE = Path(__file__).resolve().parent


@pytest.fixture
def run_ranks():
    """run_ranks(file, ranks, env) runs a module of tests on so many ranks; all must pass."""
    return lambda name, ranks, env=None: run_module(HERE / name, ranks, env)


@pytest.fixture
def run_script(tmp_path):
    """run_script(source, ranks, ...) runs a Python script on so many ranks; returns the process."""

    def run(source, ranks, env=None, deadline_s=300):
        script = tmp_path / "script.py"
        script.write_text(source, encoding="utf-8")
        return launch(ranks, sys.executable, script, env=env, deadline_s=deadline_s)

    return run
