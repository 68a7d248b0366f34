# SPDX-License-Identifier: Apache-2.0
"""The examples run on two ranks; the second run resumes."""

import re
import sys
from pathlib import Path

from launching import launch

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "keras"


def test_callbacks(tmp_path):
    command = [sys.executable, EXAMPLES / "keras_callbacks.py", "--epochs", "4"]
    command += ["--checkpoint", tmp_path / "model.keras"]
    losses = []
    for word in ("new", "resumed"):
        result = launch(2, *command, env={"KERAS_BACKEND": "torch"})
        assert result.returncode == 0, result.stdout[-8000:]
        found = re.search(rf"{word} loss (\S+) -> (\S+)", result.stdout)
        losses.append((float(found[1]), float(found[2])))
    assert losses[0][1] < losses[0][0] / 2
    assert losses[1][0] < losses[0][0] / 2  # begins where the first run ended
