#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fail on an exported function of src/engine that is not named after its file, or is not needed.

A reader who meets plan_op() opens plan.c. So the first word of every function that is not static is
the name of its file. And a function that no other file calls, tests apart, is static or deleted.

Where the documents lead a reader to `plan.c:plan_op()`, that function must be there.
"""

import re
import sys
from pathlib import Path

from check_calls import report

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "src/engine"
CALLERS = ("src", "launcher", "sim", "bindings")
TOURS = ("ARCHITECTURE.md", "src/engine/README.md", "src/api/README.md")

DEFINITION = re.compile(r"^(?!static\b)\w[\w \*]*?[ \*](\w+)\([^;{}]*\)\n\{", re.MULTILINE)


def check_file(path, texts):
    text = texts[path]
    problems = []
    for name in DEFINITION.findall(text):
        where = f"{path.relative_to(ROOT)}: {name}()"
        if not name.startswith(path.stem + "_"):
            problems.append(f"{where} is not named after its file")
        call = re.compile(rf"\b{name}\b")
        others = (t for p, t in texts.items() if p != path and p.suffix == ".c")
        if not any(call.search(t) for t in others):
            problems.append(f"{where} has no caller in another file: make it static or delete it")
    return problems


STOP = re.compile(r"`([\w/]+\.(?:c|py)):(\w+)\(\)`")


def check_tour(name):
    """Stops are files beside the document or from the root."""
    document = ROOT / name
    problems = []
    for file, function in STOP.findall(document.read_text(encoding="utf-8")):
        path = next((p for p in (document.parent / file, ROOT / file) if p.is_file()), None)
        definition = rf"^(?:[\w \*]*[ \*]{function}\([^;]*?\)\s*\{{| *def {function}\()"
        if path is None or not re.search(definition, path.read_text(encoding="utf-8"), re.M):
            problems.append(f"{name}: there is no {function}() in {file}")
    return problems


def main():
    texts = {
        p: p.read_text(encoding="utf-8")
        for folder in CALLERS
        for p in sorted((ROOT / folder).rglob("*.c"))
    }
    files = [p for p in texts if p.parent == FOLDER]
    problems = [problem for path in files for problem in check_file(path, texts)]
    for name in TOURS:
        problems += check_tour(name)
    return report("names", f"{len(files)} files", len(files), problems)


if __name__ == "__main__":
    sys.exit(main())
