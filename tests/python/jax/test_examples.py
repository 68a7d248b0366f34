# SPDX-License-Identifier: Apache-2.0
"""The examples run on two ranks, and what they train gets better."""

import re
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "jax"

COMMANDS = {
    "jax_digits.py": ["--epochs", "2"],
    "jax_gpt.py": ["--steps", "21", "--batch-size", "4", "--length", "32"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_example(launch_ranks, name):
    pytest.importorskip("optax")
    result = launch_ranks(2, sys.executable, EXAMPLES / name, *COMMANDS[name])
    assert result.returncode == 0, result.stdout[-8000:]
    losses = [float(text) for text in re.findall(r"loss (\d+\.\d+)", result.stdout)]
    assert len(losses) == 2 and losses[-1] < losses[0]
