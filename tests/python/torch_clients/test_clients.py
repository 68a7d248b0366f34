# SPDX-License-Identifier: Apache-2.0
"""Accelerate, Lightning and the Trainer of transformers on the backend, unmodified.

Each trains on two ranks with our backend and with gloo, and on one process that sees all the data.
"""

import sys
from pathlib import Path

import pytest
import torch
from launching import run, torchrun

CLIENT = Path(__file__).resolve().parent / "client.py"
OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "ACCELERATE_USE_CPU": "true"}


def train(library, backend, path):
    """What rank 0 has at the end."""
    arguments = [library, backend, path]
    if backend == "none" or library == "lightning":  # Lightning starts its ranks itself
        command = [sys.executable, "-W", "ignore", CLIENT, *arguments]
        result = run([str(part) for part in command], OFFLINE, 300)
    else:
        result = torchrun(CLIENT, 2, *arguments, env=OFFLINE)
    assert result.returncode == 0, result.stdout[-8000:]
    return torch.load(path)


@pytest.mark.parametrize("library", ["accelerate", "lightning", "trainer"])
def test_training_gives_what_gloo_and_one_process_give(library, tmp_path):
    ours, theirs, alone = (
        train(library, backend, tmp_path / backend) for backend in ("horovod", "gloo", "none")
    )
    for p, q, r in zip(ours, theirs, alone, strict=True):
        assert torch.equal(p, q)
        torch.testing.assert_close(p, r, rtol=1e-4, atol=1e-5)
