#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fail on an #include that points upwards or sideways among the layers of the source tree.

The table below is the one of ARCHITECTURE.md. A unit is a folder: `src/base`, `launcher`, or, for
the two folders that hold interchangeable implementations, `src/transport/tcp` and so on. Every
unit may include itself, the public headers, and the units listed for it. A folder that holds
implementations (`src/transport`) may include each of them, because its one table lists them all;
an implementation may include its folder's own headers, but never another implementation.

The engine is opaque: outside of its folder, tests included, only its faces may be included. The
files in WHITE_BOX look inside on purpose.
"""

import re
import sys
from pathlib import Path

from check_calls import report

ROOT = Path(__file__).resolve().parent.parent

PUBLIC = "include/horovod"
# Folders whose sub-folders are interchangeable implementations behind one table.
FAMILIES = ("src/transport", "src/backend")

BELOW_ENGINE = (
    "src/base",
    "src/wire",
    "src/transport",
    "src/reduce",
    "src/memory",
    "src/schedule",
    "src/backend",
)
# A family's name allows its shared headers; `name/*` allows its implementations too.
ALLOWED = {
    PUBLIC: (),
    "src/base": (),
    "src/wire": ("src/base",),
    "src/member": ("src/base", "src/wire"),
    "src/transport": ("src/base", "src/wire", "src/transport/*"),
    "src/reduce": ("src/base",),
    "src/memory": ("src/base",),
    "src/schedule": ("src/base",),
    "src/backend": (
        "src/base",
        "src/wire",
        "src/transport",
        "src/reduce",
        "src/schedule",
        "src/backend/*",
    ),
    # The native backend reduces in place from peers' arenas, which only shm has.
    "src/backend/native": ("src/transport/shm",),
    # The MPI backend calls the library that the MPI transport has found.
    "src/backend/mpi": ("src/transport/mpi",),
    "src/engine": (*BELOW_ENGINE, "src/transport/*", "src/backend/*"),
    "src/api": (
        *BELOW_ENGINE,
        "src/member",
        "src/engine",
        "src/transport/*",
        "src/backend/*",
    ),
    "launcher": ("src/base", "src/wire"),
    "sim": (*BELOW_ENGINE, "src/member", "src/engine", "src/transport/*", "src/backend/*"),
    "bindings": (),
}

# The headers of a folder that others may include; a folder that is not listed has no private ones.
FACES = {"src/engine": ("engine.h", "timeline.h")}
WHITE_BOX = {
    "sim/sim_explore.c": "engine/message.h",
    "sim/sim_rogue.c": "engine/coordinator.h engine/engine_private.h engine/message.h",
    "tests/fuzz/fuzz_engine_message.c": "engine/engine_private.h",
    "tests/sim/test_sim_coordinator.c": "engine/engine_private.h",
    "tests/sim/test_sim_deadlock.c": "engine/engine_private.h",
    "tests/sim/test_sim_rogue.c": "engine/engine_private.h engine/message.h",
    "tests/unit/test_clock.c": "engine/clock.h",
    "tests/unit/test_engine_message.c": "engine/message.h",
    "tests/unit/test_pace.c": "engine/pace.h",
    "tests/unit/test_tuner.c": "engine/tuner.h",
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


def check_face(source, name, target):
    """What is wrong with including this file of another folder's, or None."""
    folder = target.parent.as_posix()
    if folder not in FACES or source.parent.as_posix() == folder:
        return None
    if target.name in FACES[folder] or name in WHITE_BOX.get(source.as_posix(), "").split():
        return None
    faces = ", ".join(FACES[folder])
    return f'{source}: "{name}" is private to {folder}; others include {faces}'


def check_test(path):
    """A test may include any layer, but of an opaque folder only its faces."""
    source = path.relative_to(ROOT)
    problems = []
    for name in QUOTED.findall(path.read_text(encoding="utf-8")):
        target = resolve(path, name)
        problems.append(target and check_face(source, name, target))
    return [problem for problem in problems if problem]


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
        private = check_face(source, name, target)
        if private:
            problems.append(private)
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


def sources(*folders):
    files = []
    for folder in folders:
        files += sorted(p for p in (ROOT / folder).rglob("*") if p.suffix in (".c", ".h", ".inc"))
    return files


def main():
    files = sources("include", "src", "launcher", "sim", "bindings")
    problems = [problem for path in files for problem in check_file(path)]
    tests = sources("tests", "bench")
    problems += [problem for path in tests for problem in check_test(path)]
    files += tests
    return report("layers", f"{len(files)} files", len(files), problems)


if __name__ == "__main__":
    sys.exit(main())
