# SPDX-License-Identifier: Apache-2.0
"""Start `ranks_*.py` on several ranks with a backend of Keras 3, by the real launcher.

Without Keras, or where Keras comes with TensorFlow (tests/python/tensorflow has that), the folder
is left out.
"""

import importlib.util
from pathlib import Path

import pytest
from launching import run_module

HERE = Path(__file__).resolve().parent

if importlib.util.find_spec("keras") is None or importlib.util.find_spec("tensorflow") is not None:
    collect_ignore_glob = ["*"]


@pytest.fixture
def run_ranks():
    """run_ranks(file, ranks, backend) runs a module of tests on so many ranks; all must pass."""
    return lambda name, ranks, backend: run_module(HERE / name, ranks, {"KERAS_BACKEND": backend})
