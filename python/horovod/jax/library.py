# SPDX-License-Identifier: Apache-2.0
"""The handler in libhorovod_jax.so, known to JAX: the one place that loads and registers it."""

import ctypes
import os
from pathlib import Path

import jax
import jaxlib

from horovod.common.library import native

try:
    from jax import ffi
except ImportError:  # before 0.5
    from jax.extend import ffi

TARGET = "horovod_collective_1"  # changes with the format of the attributes
OLDEST = (0, 4, 35)
# Older ones have functions for futures, but their CPU runtime does not wait for them.
OLDEST_WITH_FUTURES = (0, 6, 1)


def _version(text):
    return tuple(int(part) for part in text.split(".")[:3])


def library_path():
    return Path(native.__file__).parent / "lib" / "libhorovod_jax.so"


def _is_blocking():
    if os.environ.get("HOROVOD_JAX_BLOCKING", "0") not in ("", "0"):
        return True
    return _version(jaxlib.__version__) < OLDEST_WITH_FUTURES


def _register():
    if _version(jax.__version__) < OLDEST:
        raise ImportError(
            f"horovod.jax needs JAX {'.'.join(map(str, OLDEST))} or later; this is "
            f"{jax.__version__}. Install a newer one: pip install -U jax"
        )
    handler = ctypes.CDLL(str(library_path())).hvd_jax_collective
    ffi.register_ffi_target(TARGET, ffi.pycapsule(handler), platform="cpu")


def _needs_spare_result():
    """The compiler of jaxlib 0.6 aborts on some programs whose last instruction is a call."""
    return _version(jaxlib.__version__) < (0, 7)


_register()
# Does a collective inside a program wait in its thread? Then the calls of a program are chained.
IS_BLOCKING = _is_blocking()
HAS_SPARE_RESULT = not IS_BLOCKING and _needs_spare_result()
