# SPDX-License-Identifier: Apache-2.0
"""MXNet between two machines: the same training, without shared memory."""

import sys
from pathlib import Path

from namespaces import namespaces  # noqa: F401 - a fixture

HERE = Path(__file__).resolve().parent


def test_between_namespaces(namespaces):  # noqa: F811
    options = ["-q", "-x", "--no-header", "-p", "no:cacheprovider", "-k", "hundred or deferred"]
    command = [sys.executable, "-m", "pytest", *options, HERE / "ranks_training.py"]
    outputs = namespaces.run(command, 2)
    assert all(" passed" in output for output in outputs), outputs
