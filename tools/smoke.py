#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Use an installed Horovod without any framework: is it whole, and does it run here?

    python tools/smoke.py

Loads the library that the package carries, makes a world of one, then lets the installed launcher
start two ranks of this file, which must find each other.
"""

import ctypes
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import horovod
import horovod._native  # noqa: F401 - it must load on this Python


def start_world():
    """Initialise; returns the library, this rank and the number of ranks."""
    library = ctypes.CDLL(str(Path(horovod.__file__).parent / "lib" / "libhorovod.so"))
    library.hvd_last_error.restype = ctypes.c_char_p
    status = library.hvd_init(None)
    if status != 0:
        raise SystemExit(f"smoke: hvd_init gave {status}: {library.hvd_last_error().decode()}")
    return library, library.hvd_rank(), library.hvd_size()


def check_world(expected_size):
    library, rank, size = start_world()
    if size != expected_size or not 0 <= rank < size:
        raise SystemExit(f"smoke: rank {rank} of {size}, expected {expected_size} ranks")
    library.hvd_shutdown()


def main():
    if "SMOKE_RANKS" in os.environ:
        check_world(int(os.environ["SMOKE_RANKS"]))
        return
    if horovod.__version__ != "0.29.0":
        raise SystemExit(f"smoke: version {horovod.__version__}")
    check_world(1)
    launcher = Path(sysconfig.get_path("scripts")) / "horovodrun"
    command = [launcher, "-np", "2", sys.executable, "-I", __file__]
    subprocess.run(command, env=dict(os.environ, SMOKE_RANKS="2"), timeout=60, check=True)


if __name__ == "__main__":
    main()
