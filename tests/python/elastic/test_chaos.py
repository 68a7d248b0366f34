# SPDX-License-Identifier: Apache-2.0
"""One short seed of tests/chaos."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "chaos"))

import chaos  # noqa: E402


def test_a_short_seed():
    step, size, sizes = chaos.run(seed=1, events=8)
    assert step == len(sizes) > 0
