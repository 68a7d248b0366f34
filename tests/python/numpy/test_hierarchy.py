# SPDX-License-Identifier: Apache-2.0
"""HOROVOD_HIERARCHICAL_*: two ranks on each of two machines; what crosses the line shows which
algorithm ran."""

import re
import sys
from pathlib import Path

import pytest
from namespaces import namespaces  # noqa: F401 - a fixture

PROGRAM = Path(__file__).resolve().parent / "hierarchy_program.py"
BYTES = 1001 * 4
ROW = 7 * 8


@pytest.fixture(scope="module")
def sent(namespaces):  # noqa: F811
    """Bytes that each rank sent to the other machine, by collective."""

    def run(**env):
        names = {f"HOROVOD_HIERARCHICAL_{name.upper()}": value for name, value in env.items()}
        outputs = namespaces.run([sys.executable, PROGRAM], 4, names)
        found = [
            re.search(r"rank \d allreduce (\d+) allgather (\d+)\.", output) for output in outputs
        ]
        return [[int(match[kind]) for match in found] for kind in (1, 2)]

    return run


def test_default_and_on(sent):
    for env in ({}, {"allreduce": "1"}):
        reduced, gathered = sent(**env)
        assert sum(reduced) == 2 * BYTES  # each machine sends its sum once
        assert sum(gathered) > 10 * ROW


def test_allreduce_off(sent):
    reduced, _ = sent(allreduce="0")
    assert sum(reduced) == 4 * BYTES  # each rank sends its sum


def test_allgather_on(sent):
    """The first rank of each machine sends all rows of its machine, once."""
    reduced, gathered = sent(allgather="1")
    assert sum(reduced) == 2 * BYTES
    assert gathered == [3 * ROW, 0, 7 * ROW, 0]
