#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check_portable.py WHEEL GLIBC - does everything native in the wheel run on that glibc?

Reads the symbol versions and the needed libraries of each ELF file, the launcher included. The
wheel's manylinux tag is a promise, and this is what keeps it.
"""

import io
import re
import sys
import zipfile

from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection

SYSTEM_LIBRARIES = re.compile(r"^(lib(c|m|dl|rt|pthread)|ld-linux-x86-64)\.so\.\d+$")


def problems_of(name, elf, own_libraries, limit):
    problems = []
    for section in elf.iter_sections():
        if isinstance(section, GNUVerNeedSection):
            for _, entries in section.iter_versions():
                for entry in entries:
                    match = re.match(r"GLIBC_(\d+)\.(\d+)", entry.name)
                    if match and tuple(map(int, match.groups())) > limit:
                        problems.append(f"{name}: needs {entry.name}")
        if isinstance(section, DynamicSection):
            for tag in section.iter_tags("DT_NEEDED"):
                if tag.needed in own_libraries or SYSTEM_LIBRARIES.match(tag.needed):
                    continue
                problems.append(f"{name}: needs {tag.needed}, which the wheel does not carry")
    return problems


def main():
    wheel, limit = sys.argv[1], tuple(map(int, sys.argv[2].split(".")))
    problems, count = [], 0
    with zipfile.ZipFile(wheel) as archive:
        own_libraries = {name.rpartition("/")[2] for name in archive.namelist()}
        for name in archive.namelist():
            content = archive.read(name)
            if content[:4] != b"\x7fELF":
                continue
            count += 1
            problems += problems_of(name, ELFFile(io.BytesIO(content)), own_libraries, limit)
    for problem in problems:
        print(problem, file=sys.stderr)
    print(f"portable: {count} native files, {len(problems)} problems with glibc {sys.argv[2]}")
    return 1 if problems or not count else 0


if __name__ == "__main__":
    sys.exit(main())
