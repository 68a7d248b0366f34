# SPDX-License-Identifier: Apache-2.0
"""The folder is where the ranks of these tests look for modules that they share."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent))
