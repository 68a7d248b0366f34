# SPDX-License-Identifier: Apache-2.0
"""Public names keep their arguments: order, kinds and defaults, as in the files of `signatures`.

The files were written from the contract of Horovod 0.28.1 before the argument lists were brought
together. A new name needs no line; a name that has one must keep it.
"""

import importlib
from pathlib import Path

import pytest
from surface import lines_of

HERE = Path(__file__).resolve().parent


def key(line):
    return line.split("(")[0]


def test_signatures(package):
    path = HERE / "signatures" / f"{package}.txt"
    frozen = path.read_text(encoding="utf-8").splitlines()
    now = {key(line): line for line in lines_of(package)}
    assert len(frozen) > 0
    missing = [line for line in frozen if key(line) not in now]
    changed = [(line, now[key(line)]) for line in frozen if now.get(key(line), line) != line]
    assert not missing and not changed


def test_common_names_are_those_of_the_operations(package):
    """A package that has a form of its own, of shutdown() for instance, offers that one."""
    from horovod.common import names

    try:
        ops = importlib.import_module(f"{package}.mpi_ops")
    except ModuleNotFoundError:
        pytest.skip("has no module mpi_ops")
    offered = importlib.import_module(package)
    shared = [name for name in names.__all__ if hasattr(ops, name) and hasattr(offered, name)]
    assert "shutdown" in shared
    assert [name for name in shared if getattr(ops, name) is not getattr(offered, name)] == []
