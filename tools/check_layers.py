#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fail on an #include that points upwards or sideways among the layers of the source tree.

The table below is the one of ARCHITECTURE.md. A unit is a folder: `src/base`, `launcher`, or, for
the three folders that hold interchangeable implementations, `src/transport/tcp` and so on. Every
unit may include itself, the public headers, and the units listed for it. A folder that holds
implementations (`src/transport`) may include each of them, because its one table lists them all;
an implementation may include its folder's own headers, but never another implementation.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

PUBLIC = "include/horovod"
# Folders whose sub-folders are interchangeable implementations behind one table.
FAMILIES = ("src/transport", "src/backend", "src/device")

BELOW_ENGINE = (
    "src/base",
    "src/wire",
    "src/transport",
    "src/device",
    "src/reduce",
    "src/schedule",
    "src/backend",
)
# A family's name allows its shared headers; `name/*` allows its implementations too.
ALLOWED = {
    PUBLIC: (),
    "src/base": (),
    "src/wire": ("src/base",),
    "src/transport": ("src/base", "src/wire", "src/transport/*"),
    "src/device": ("src/base", "src/device/*"),
    "src/reduce": ("src/base",),
    "src/schedule": ("src/base",),
    "src/backend": (
        "src/base",
        "src/wire",
        "src/transport",
        "src/device",
        "src/reduce",
        "src/schedule",
        "src/backend/*",
    ),
    # The native backend reduces in place from peers' arenas, which only shm has.
    "src/backend/native": ("src/transport/shm",),
    # The MPI backend calls the library that the MPI transport has found.
    "src/backend/mpi": ("src/transport/mpi",),
    "src/engine": (*BELOW_ENGINE, "src/transport/*", "src/backend/*", "src/device/*"),
    "src/api": (
        *BELOW_ENGINE,
        "src/engine",
        "src/transport/*",
        "src/backend/*",
        "src/device/*",
    ),
    "launcher": ("src/base", "src/wire"),
    "sim": (*BELOW_ENGINE, "src/engine", "src/transport/*", "src/backend/*"),
    "bindings": (),
}

QUOTED = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
ANGLED = re.compile(r"^\s*#\s*include\s*<([^>]+)>", re.MULTILINE)
# Loaded at run time or used through a stable C door, so never needed to build the core.
FOREIGN = re.compile(r"^(Python\.h|mpi\.h|cuda|nccl|uc[pst]/|tensorflow/|torch/|mxnet/|xla/)")


def unit_of(path):
    """The unit that a path relative to the root belongs to, or None if it is in no layer."""
    parts = path.parts
    if parts[:2] == ("include", "horovod"):
        return PUBLIC
    if parts[0] == "src" and len(parts) > 2:
        unit = "/".join(parts[:2])
        if unit in FAMILIES and len(parts) > 3:
            return "/".join(parts[:3])
        return unit
    if parts[0] in ("launcher", "sim", "bindings"):
        return parts[0]
    return None


def family_of(unit):
    """src/transport for src/transport/tcp, else None."""
    parent = unit.rpartition("/")[0]
    return parent if parent in FAMILIES else None


def is_allowed(source, target):
    if target in (source, PUBLIC):
        return True
    family = family_of(source)
    allowed = set(ALLOWED.get(source, ()))
    if family:
        allowed.add(family)
        allowed.update(a for a in ALLOWED[family] if a != family + "/*")
    if target in allowed:
        return True
    target_family = family_of(target)
    return bool(target_family) and target_family + "/*" in allowed


def resolve(source_file, text):
    """The file that a quoted include names: beside the source, then -Iinclude, -Isrc."""
    for base in (source_file.parent, ROOT / "include", ROOT / "src", ROOT):
        candidate = (base / text).resolve()
        if candidate.is_file() and candidate.is_relative_to(ROOT):
            return candidate.relative_to(ROOT)
    return None


def check_file(path):
    source = path.relative_to(ROOT)
    unit = unit_of(source)
    if unit is None:
        return [f"{source}: in no layer (see ARCHITECTURE.md)"]
    if unit not in ALLOWED and family_of(unit) is None:
        return [f"{source}: folder {unit} is in no layer (see ARCHITECTURE.md)"]
    problems = []
    text = path.read_text(encoding="utf-8")
    for name in QUOTED.findall(text):
        target = resolve(path, name)
        if target is None:
            problems.append(f'{source}: "{name}" is not found')
            continue
        target_unit = unit_of(target)
        if target_unit is None or not is_allowed(unit, target_unit):
            problems.append(f'{source}: {unit} may not include "{name}" ({target_unit or target})')
    if unit != "bindings":
        problems += [
            f"{source}: <{name}> must not be needed to build"
            for name in ANGLED.findall(text)
            if FOREIGN.match(name)
        ]
    return problems


def main():
    files = []
    for folder in ("include", "src", "launcher", "sim", "bindings"):
        files += sorted(p for p in (ROOT / folder).rglob("*") if p.suffix in (".c", ".h", ".inc"))
    problems = [problem for path in files for problem in check_file(path)]
    for problem in problems:
        print(problem, file=sys.stderr)
    print(f"layers: {len(files)} files, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
