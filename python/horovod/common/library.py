# SPDX-License-Identifier: Apache-2.0
"""The one place that loads libhorovod: fast calls by the native module, ctypes for the curious."""

import ctypes
import functools
from pathlib import Path

from horovod import _native as native

__all__ = ["native", "library_path", "load_ctypes"]


def library_path():
    return Path(__file__).resolve().parent.parent / "lib" / "libhorovod.so"


def _loaded_path():
    """The very file the native module is linked to, or where the package keeps it."""
    path = Path(native.__file__).parent / "lib" / "libhorovod.so"
    return path if path.exists() else library_path()


@functools.cache
def load_ctypes():
    """The C names `horovod_*` of Appendix C of the contract, and `hvd_*` of hvd.h."""
    return ctypes.CDLL(str(_loaded_path()), mode=ctypes.RTLD_GLOBAL)
