# SPDX-License-Identifier: Apache-2.0
"""Public names keep their arguments: order, kinds and defaults, as in the files of `signatures`.

The files were written from the contract of Horovod 0.28.1 before the argument lists were brought
together. A new name needs no line; a name that has one must keep it.
"""

from pathlib import Path

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
