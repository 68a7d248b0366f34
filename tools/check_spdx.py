#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fail on a source file that lacks its SPDX licence line among the first three lines."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LINE = "SPDX-License-Identifier: Apache-2.0"
SUFFIXES = {".c", ".h", ".def", ".inc", ".py", ".pyi", ".sh", ".cmake", ".map", ".toml"}
NAMES = {"CMakeLists.txt", "Makefile"}
SKIPPED = {"build", "dist", ".git", ".venv", "__pycache__"}


def is_source(path):
    parts = path.relative_to(ROOT).parts
    if SKIPPED.intersection(parts) or not path.is_file():
        return False
    return path.suffix in SUFFIXES or path.name in NAMES or parts[0] == ".ci"


def has_line(path):
    head = path.read_text(encoding="utf-8", errors="replace").splitlines()[:3]
    # An empty file, such as a bare __init__.py, has nothing to license.
    return not head or any(LINE in line for line in head)


def main():
    files = [path for path in sorted(ROOT.rglob("*")) if is_source(path)]
    lacking = [path for path in files if not has_line(path)]
    for path in lacking:
        print(f"{path.relative_to(ROOT)}: no line '{LINE}'", file=sys.stderr)
    print(f"licence lines: {len(files)} files, {len(lacking)} without")
    return 1 if lacking else 0


if __name__ == "__main__":
    sys.exit(main())
