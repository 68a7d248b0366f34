#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check_portable.py WHEEL GLIBC - does all that is native in the wheel run where its tag says?

Reads the processor, the symbol versions and the needed libraries of each ELF file, the launcher
included. The wheel's manylinux tag is a promise, and this is what keeps it.
"""

import io
import re
import sys
import zipfile

from check_calls import report
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection

SYSTEM_LIBRARIES = re.compile(r"^(lib(c|m|dl|rt|pthread)|ld-linux-(x86-64|aarch64))\.so\.\d+$")
MACHINES = {"x86_64": "EM_X86_64", "aarch64": "EM_AARCH64"}


def machine_of(wheel):
    """The ELF machine that the wheel's platform tag promises; None: no tag that we know."""
    match = re.search(r"-manylinux_\d+_\d+_(\w+)\.whl$", wheel)
    return MACHINES.get(match.group(1)) if match else None


def problems_of(name, elf, own_libraries, limit, machine):
    problems = []
    if elf["e_machine"] != machine:
        problems.append(f"{name}: is for {elf['e_machine']}, the wheel's tag says {machine}")
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
    machine, problems, count = machine_of(wheel), [], 0
    with zipfile.ZipFile(wheel) as archive:
        own_libraries = {name.rpartition("/")[2] for name in archive.namelist()}
        for name in archive.namelist():
            content = archive.read(name)
            if content[:4] != b"\x7fELF":
                continue
            count += 1
            problems += problems_of(
                name, ELFFile(io.BytesIO(content)), own_libraries, limit, machine
            )
    return report(f"portable to glibc {sys.argv[2]}", f"{count} native files", count, problems)


if __name__ == "__main__":
    sys.exit(main())
