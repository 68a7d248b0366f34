# SPDX-License-Identifier: Apache-2.0
"""Ranks that stay, as notebooks use them. Without IPython the tests of the magics are left out."""

import importlib.util

import pytest
from horovod.notebook import Pool

if importlib.util.find_spec("nbclient") is None:
    collect_ignore = ["test_notebook.py"]


@pytest.fixture
def pool():
    ranks = Pool(3)
    yield ranks
    ranks.stop()
