# SPDX-License-Identifier: Apache-2.0
"""horovod.keras with Keras 3 on PyTorch and on JAX."""

import subprocess
import sys

import pytest

BACKENDS = ["torch", "jax"]


@pytest.mark.parametrize("backend", BACKENDS)
def test_fit(run_ranks, backend):
    run_ranks("ranks_fit.py", 2, backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_reduced_once(run_ranks, backend):
    run_ranks("ranks_once.py", 2, backend)


def test_other_backends_are_refused():
    script = (
        "from horovod._keras.bridge import bridge_of\n"
        "class Backend:\n"
        "    backend = staticmethod(lambda: 'numpy')\n"
        "bridge_of(Backend)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert result.returncode != 0
    assert (
        "works with Keras on tensorflow, torch, jax; the backend here is 'numpy'" in result.stderr
    )
