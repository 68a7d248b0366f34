# SPDX-License-Identifier: Apache-2.0
"""The end of Horovod in a process whose programs may still be running.

JAX starts programs and returns. A rank that does not look at its results would shut down while its
last steps, which the other ranks need, have not begun.
"""

import atexit
import time
from collections.abc import Iterable
from typing import Any

import jax

from horovod.common.library import native
from horovod.common.names import basics
from horovod.common.process_sets import ProcessSet
from horovod.jax import lowering

_LIMIT_S = 30.0  # a program that waits for a rank which will not come must not keep us
_LOOK_S = 0.001


def _is_done(array):
    try:
        return array.is_deleted() or array.is_ready()
    except (RuntimeError, ValueError):
        return True  # it failed


def _await_programs() -> None:
    """Wait until every array that somebody still holds has its value."""
    if not native.is_initialized() or not lowering.has_programs():
        return
    until = time.monotonic() + _LIMIT_S
    for array in jax.live_arrays():
        while not _is_done(array) and time.monotonic() < until:
            time.sleep(_LOOK_S)


def init(comm: Any = None, process_sets: str | Iterable[ProcessSet] | None = None) -> None:
    """Start Horovod. Blocks until all ranks are there.

    comm: None, or a list of world ranks that form the job, or an mpi4py communicator.
    process_sets: None, a list of ProcessSet, or "dynamic" to allow adding them later.
    """
    basics.init(comm, process_sets)
    atexit.unregister(_await_programs)
    atexit.register(_await_programs)  # runs before what basics.init() has registered


def shutdown() -> None:
    """Stop Horovod on all ranks, after the programs whose results are still held have ended."""
    _await_programs()
    basics.shutdown()
