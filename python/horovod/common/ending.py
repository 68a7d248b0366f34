# SPDX-License-Identifier: Apache-2.0
"""The order in which ranks end after a failure.

A rank that raises or exits leaves the job, and that makes the others' operations fail; they raise
in turn and may well be gone before it is. Whoever then looks at exit codes (`horovodrun` reports
the first) would blame a victim. So a process that ends because of an error that came from Horovod
waits a moment, until the one that failed by itself is gone.

Start reading at `watch`.
"""

import sys
import time

from horovod.common.exceptions import HorovodInternalError

_VICTIM_SECONDS = 1.0
_MARKS = ("Horovod has been shut down", "HorovodInternalError")  # of frameworks' own classes

_is_victim = False
_next_hook = None


def _hook(kind, error, traceback):
    global _is_victim
    text = str(error)
    _is_victim = isinstance(error, HorovodInternalError) or any(mark in text for mark in _MARKS)
    _next_hook(kind, error, traceback)


def watch():
    """Look at the exception that ends the process, if one does."""
    global _next_hook
    if sys.excepthook is not _hook:
        _next_hook = sys.excepthook
        sys.excepthook = _hook


def let_others_go_first():
    """For the exit handler, before anything of ours is taken down."""
    global _is_victim
    if _is_victim:
        _is_victim = False
        time.sleep(_VICTIM_SECONDS)
