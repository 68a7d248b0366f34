# SPDX-License-Identifier: Apache-2.0
"""Start the files `ranks_*.py` on several ranks: by horovodrun, or by torchrun."""

import sys
from pathlib import Path

import launching
import pytest
from launching import run_module

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE))  # what the files of ranks share


@pytest.fixture
def run_ranks():
    """run_ranks(file, ranks, env) runs a module of tests on so many ranks; all must pass."""
    return lambda name, ranks, env=None: run_module(HERE / name, ranks, env)


@pytest.fixture
def torchrun():
    """torchrun(file, ranks, *arguments) runs a program by PyTorch's own launcher."""
    return launching.torchrun
