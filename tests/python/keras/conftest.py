# SPDX-License-Identifier: Apache-2.0
"""Start `ranks_*.py` on several ranks with a backend of Keras 3, by the real launcher.

Without Keras, or where Keras comes with TensorFlow (tests/python/tensorflow has that), the folder
is left out.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
DEADLINE_S = 280

if importlib.util.find_spec("keras") is None or importlib.util.find_spec("tensorflow") is not None:
    collect_ignore_glob = ["*"]


@pytest.fixture
def run_ranks():
    """run_ranks(file, ranks, backend) runs a module of tests on so many ranks; all must pass."""
    beside = Path(sys.executable).parent / "horovodrun"
    launcher = str(beside) if beside.exists() else shutil.which("horovodrun")

    def run(name, ranks, backend):
        environment = {k: v for k, v in os.environ.items() if not k.startswith("HOROVOD_")}
        environment.update(KERAS_BACKEND=backend, OMP_NUM_THREADS="1", PYTHONFAULTHANDLER="1")
        options = ["-q", "-x", "--no-header", "-p", "no:cacheprovider", "-o", "timeout=120"]
        result = subprocess.run(
            [launcher, "-np", str(ranks), sys.executable, "-m", "pytest", *options, HERE / name],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
        assert result.returncode == 0, f"{name} on {backend}:\n{result.stdout[-12000:]}"

    return run
