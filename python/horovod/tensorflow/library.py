# SPDX-License-Identifier: Apache-2.0
"""The ops of libhorovod_tensorflow.so as Python functions: the one place that loads them.

If this TensorFlow lacks something that the C ops need, the same functions come from
horovod.tensorflow.fallback, which is slower, and one warning says why.
"""

import contextlib
import ctypes
import os
import warnings
from pathlib import Path

import tensorflow as tf

from horovod.common.library import native

COLLECTIVES = (
    "HorovodAllreduce",
    "HorovodGroupedAllreduce",
    "HorovodAllgather",
    "HorovodGroupedAllgather",
    "HorovodBroadcast",
    "HorovodReducescatter",
    "HorovodGroupedReducescatter",
    "HorovodAlltoall",
)
QUESTIONS = (
    "HorovodSize",
    "HorovodProcessSetIncluded",
    "HorovodLocalSize",
    "HorovodRank",
    "HorovodLocalRank",
)
_STATELESS = "_HOROVOD_TENSORFLOW_STATELESS"
_state = {"is_native": False, "name_eager": None}


def library_path():
    return Path(native.__file__).parent / "lib" / "libhorovod_tensorflow.so"


def _exempt_from_control_edges(names):
    """Let tf.function run these stateful ops side by side. False if this TensorFlow can't.

    Collectives are ordered by agreement between the ranks; an order within one graph would only
    serialise them.
    """
    try:
        from tensorflow.python.framework import auto_control_deps

        known = auto_control_deps.ASYNC_STATEFUL_OPS
        auto_control_deps.ASYNC_STATEFUL_OPS = frozenset(set(known) | set(names))
    except (ImportError, AttributeError, TypeError):
        return False
    return True


@contextlib.contextmanager
def _stateless_registration(is_wanted):
    if is_wanted:
        os.environ[_STATELESS] = "1"
    try:
        yield
    finally:
        if is_wanted:
            del os.environ[_STATELESS]


def _ask(path, question):
    """A text that a function of the loaded library gives, or None."""
    # Only after load_op_library(): opened here first, the file would yield no Python functions.
    function = getattr(ctypes.CDLL(str(path)), question)
    function.restype = ctypes.c_char_p
    return function().decode() or None


def xla_target():
    """Name of the custom call for compiled functions, or None."""
    return _ask(library_path(), "hvd_tensorflow_xla") if _state["is_native"] else None


def _name_function(path):
    """The function that names the next eager call of the thread."""
    function = ctypes.CDLL(str(path)).hvd_tensorflow_name
    function.argtypes, function.restype = [ctypes.c_char_p], None
    return function


@contextlib.contextmanager
def eager_name(name):
    """The eager op that this thread runs inside has this name on all ranks.

    TensorFlow does not tell an eager kernel its name, so it is left where the kernel, which runs in
    the same thread, finds it.
    """
    set_name = _state["name_eager"]
    if set_name is None:
        yield
        return
    set_name(name.encode())
    try:
        yield
    finally:
        set_name(None)


def _load_native():
    path = library_path()
    is_exempt = _exempt_from_control_edges(COLLECTIVES + QUESTIONS)
    try:
        with _stateless_registration(not is_exempt):
            library = tf.load_op_library(str(path))
    except (tf.errors.OpError, OSError) as error:
        return None, str(error)
    error = _ask(path, "hvd_tensorflow_error")
    if error is None and not hasattr(library, "horovod_allreduce"):
        error = f"{path} was opened before TensorFlow could collect its ops"
    return library, error


def load():
    """(module with the functions horovod_*, is it the native one?)"""
    if os.environ.get("HOROVOD_TENSORFLOW_FALLBACK", "0") in ("", "0"):
        library, error = _load_native()
        if error is None:
            _state["is_native"] = True
            _state["name_eager"] = _name_function(library_path())
            return library, True
        warnings.warn(
            f"horovod.tensorflow: the native ops do not work with TensorFlow {tf.__version__}: "
            f"{error}. Going on with slower ones."
        )
    from horovod.tensorflow import fallback

    return fallback, False
