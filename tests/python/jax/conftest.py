# SPDX-License-Identifier: Apache-2.0
"""Start the files `ranks_*.py` on several ranks, with the real launcher and a deadline.

Each of those files is a pytest module that every rank runs from top to bottom; a rank that fails
stops, and the launcher ends the others. Without JAX the whole folder is left out.
"""

import importlib.util
from pathlib import Path

import launching
import pytest

HERE = Path(__file__).resolve().parent
JAX = {"JAX_PLATFORMS": "cpu"}

if importlib.util.find_spec("jax") is None:
    collect_ignore_glob = ["*"]


@pytest.fixture
def run_ranks():
    """run_ranks(file, ranks, env) runs a module of tests on so many ranks; all must pass."""

    def run(name, ranks, env=None):
        launching.run_module(HERE / name, ranks, {**JAX, **(env or {})})

    return run


@pytest.fixture
def launch_ranks():
    """launch_ranks(ranks, command...) runs a command on so many ranks; gives its process."""

    def launch(ranks, *command, env=None, **options):
        return launching.launch(ranks, *command, env={**JAX, **(env or {})}, **options)

    return launch
