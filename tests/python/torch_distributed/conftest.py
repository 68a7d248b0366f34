# SPDX-License-Identifier: Apache-2.0
"""Start the files `ranks_*.py` on several ranks: by horovodrun, or by torchrun."""

import sys
from pathlib import Path

import launching
import pytest

sys.path.append(str(Path(__file__).resolve().parent))  # what the files of ranks share


@pytest.fixture
def torchrun():
    """torchrun(file, ranks, *arguments) runs a program by PyTorch's own launcher."""
    return launching.torchrun
