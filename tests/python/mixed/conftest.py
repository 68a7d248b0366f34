# SPDX-License-Identifier: Apache-2.0
"""Jobs whose ranks have different frameworks, from environments of their own.

HVD_TEST_FRAMEWORKS names them, as `torch=/path/python,tensorflow=/path/python`. This interpreter
has MXNet, or at least NumPy; the others use the Horovod that is installed for it.
"""

import importlib.util
import os
import sys
from pathlib import Path

import horovod
import pytest
from launching import TENSORFLOW, find_launcher, run

ROOT = Path(__file__).resolve().parents[3]


def find_frameworks():
    """{framework: interpreter}, NumPy's always among them."""
    listed = os.environ.get("HVD_TEST_FRAMEWORKS", "")
    found = dict(item.split("=", 1) for item in listed.split(",") if item)
    for framework in ("torch", "tensorflow", "mxnet", "jax"):
        if importlib.util.find_spec(framework) is not None:
            found[framework] = sys.executable
    return {**found, "numpy": sys.executable}


@pytest.fixture(scope="session")
def frameworks():
    """{framework: interpreter} of what can take part."""
    return find_frameworks()


@pytest.fixture
def run_mixed():
    """run_mixed(interpreters, script, arguments...) runs a script, rank i by the i-th of them."""

    def start(interpreters, script, *arguments, deadline_s=600):
        lines = [f'{i}) exec {python} "$@" ;;' for i, python in enumerate(interpreters)]
        shell = f"case $HOROVOD_RANK in {' '.join(lines)} esac"
        command = [find_launcher(), "-np", str(len(interpreters)), "sh", "-c", shell, "sh"]
        env = {**TENSORFLOW, "PYTHONPATH": str(Path(horovod.__file__).parent.parent)}
        return run([*command, str(script), *map(str, arguments)], env, deadline_s)

    return start
