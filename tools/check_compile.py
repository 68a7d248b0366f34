#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check_compile.py [TARGET] - compile all but the platform files for another system, link nothing.

The default is aarch64-macos, with the headers that zig carries. What compiles here needs no change
for that system; to run there takes another set of the files that check_calls.py calls platform
files.
"""

import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from check_calls import PLATFORM, ROOT

FOLDERS = ("src", "sim", "launcher")
FLAGS = """
    -std=gnu11 -O1 -UNDEBUG -Wall -Wextra -Wshadow -Wconversion -Wstrict-prototypes
    -Wmissing-prototypes -Wvla -Werror -fno-strict-aliasing -ffp-contract=off
    -Iinclude -Isrc -Isim -Ilauncher -I.
"""


def zig():
    venv = subprocess.run(
        [ROOT / "tools" / "venv.sh", "wheel"], stdout=subprocess.PIPE, text=True, check=True
    ).stdout.strip()
    return next(Path(venv).glob("lib/python3*/site-packages/ziglang/zig"))


def main():
    target = sys.argv[1] if len(sys.argv) > 1 else "aarch64-macos"
    files = [
        str(path.relative_to(ROOT))
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*.c"))
    ]
    files = [name for name in files if not PLATFORM.search(name)]
    compiler = [zig(), "cc", f"--target={target}", *FLAGS.split()]
    with tempfile.TemporaryDirectory() as folder:

        def compile_one(name):
            command = [*compiler, "-c", name, "-o", f"{folder}/{name.replace('/', '_')}.o"]
            result = subprocess.run(
                command, cwd=ROOT, stderr=subprocess.PIPE, text=True, check=False
            )
            if result.returncode != 0:
                print(result.stderr, file=sys.stderr)
            return result.returncode == 0

        jobs = int(os.environ.get("JOBS") or os.cpu_count() or 1)
        with ThreadPoolExecutor(jobs) as pool:
            failed = list(pool.map(compile_one, files)).count(False)
    print(f"compile: {len(files)} files for {target}, {failed} failed")
    return 1 if failed or not files else 0


if __name__ == "__main__":
    sys.exit(main())
