# SPDX-License-Identifier: Apache-2.0
"""The zoo needs the launcher, and the frameworks that are installed."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python" / "shared"))
