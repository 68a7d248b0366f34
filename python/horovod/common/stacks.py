# SPDX-License-Identifier: Apache-2.0
"""Where this process is: for horovodrun, and for the core's proof of a deadlock.

The launcher's agent sends a signal; faulthandler's handler, a C function that needs no lock of the
interpreter, then writes the Python stacks of all threads into a file of the agent. Nothing is
recorded before that, so it costs nothing. launcher/stack.h has the format of the file.

A thread that has waited for a while asks `place_if_only_waiting` whether this process does anything
but wait. Only then can the core conclude from what all ranks wait for that none can continue.
"""

import faulthandler
import os
import signal
import sys
import sysconfig
import time
from functools import cache
from pathlib import Path
from types import FrameType

from horovod.common.library import native

# Real-time signals have no meaning of their own. The first that nobody handles is taken.
_SIGNALS = range(46, 60)
# Threads of libraries that never call code of the user: the end of a file's path, and a function.
_HARMLESS = (
    ("multiprocessing/queues.py", "_feed"),
    ("multiprocessing/resource_sharer.py", "_serve"),
    ("tqdm/_monitor.py", "run"),
    ("torch/utils/data/_utils/pin_memory.py", "_pin_memory_loop"),
    ("tensorboard/summary/writer/event_file_writer.py", "run"),
)
_WORDS_BYTES = 300
_CLAIM_FIRST_S, _CLAIM_AGAIN_S = 0.5, 1.0
_announced: tuple[int, int] | None = None  # process id and descriptor


def _free_signal():
    for number in _SIGNALS:
        try:
            if signal.getsignal(number) is signal.SIG_DFL:
                return number
        except ValueError:
            continue  # there is no such signal here
    return None


@cache
def _library_folders():
    """Code in these folders is not the user's; Horovod's own is the first."""
    own = Path(__file__).resolve().parent.parent
    paths = [sysconfig.get_path(n) for n in ("stdlib", "platstdlib", "purelib", "platlib")]
    paths += [p for p in sys.path if Path(p).name in ("site-packages", "dist-packages")]
    found = [str(own)]
    for path in paths:
        found += [p for p in (path, os.path.realpath(path)) if p not in found]
    return [folder.rstrip("/") + "/" for folder in found]


def _register(path):
    number = _free_signal()
    if number is None:
        return None
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o600)
    faulthandler.register(number, file=descriptor, all_threads=True, chain=False)
    header = [f"pid {os.getpid()}", f"signal {number}"]
    header += [f"skip {folder}" for folder in _library_folders() if "\n" not in folder]
    os.write(descriptor, "".join(f"{line}\n" for line in [*header, "ready"]).encode())
    return descriptor


def announce() -> None:
    """Tell horovodrun, if it has started this process, how to get our stacks. Never fails."""
    global _announced
    path = os.environ.get("HOROVOD_STACK_FILE")
    pid = os.getpid()
    if not path or (_announced is not None and _announced[0] == pid):
        return
    try:
        descriptor = _register(path)
    except (OSError, RuntimeError, ValueError, AttributeError):
        return  # a diagnosis less, not an error
    if descriptor is not None:
        _announced = (pid, descriptor)


def _is_harmless(frame: FrameType | None) -> bool:
    while frame is not None:
        code = frame.f_code
        if any(code.co_filename.endswith(f) and code.co_name == n for f, n in _HARMLESS):
            return True
        frame = frame.f_back
    return False


def _is_library(path: str) -> bool:
    return path.startswith(("<frozen", *_library_folders()))


def user_place(frame: FrameType | None) -> str:
    """The innermost frame of the user's code, as "train.py:88 in step"; "" if there is none."""
    while frame is not None:
        code = frame.f_code
        if not _is_library(code.co_filename):
            return f"{Path(code.co_filename).name}:{frame.f_lineno} in {code.co_name}"
        frame = frame.f_back
    return ""


def place_if_only_waiting(count: int) -> str | None:
    """Where this thread waits, if `count` threads wait and no other can submit anything."""
    frames = sys._current_frames()
    if len(frames) != count:
        others = sum(not _is_harmless(frame) for frame in frames.values())
        if others != count:
            return None
    return user_place(sys._getframe())


class LongWait:
    """Of a thread that waits for several handles in turns, and so not inside of native.wait()."""

    def __init__(self) -> None:
        self._next: float | None = None

    def look(self, handles: list[int]) -> None:
        """Once more around: nothing was submitted, and none of these has ended."""
        now = time.monotonic()
        if self._next is None:
            self._next = now + _CLAIM_FIRST_S
        elif now >= self._next:
            self._next = now + _CLAIM_AGAIN_S
            native.only_waits(handles)


# ---- the last words ----


def describe_exception(error: BaseException) -> str:
    """In one line, as "ValueError: no label (train.py:88 in step)"."""
    text = " ".join(str(error).split())
    place, trace = "", error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        if not _is_library(code.co_filename):
            place = f" ({Path(code.co_filename).name}:{trace.tb_lineno} in {code.co_name})"
        trace = trace.tb_next
    room = max(0, _WORDS_BYTES - len(place.encode()))
    line = f"{type(error).__name__}: {text}".encode(errors="replace")
    if len(line) > room:
        line = line[: max(0, room - 3)] + b"..."
    return line.decode(errors="ignore") + place


class _Hook:
    """sys.excepthook: the exception that ends this process is told to the other ranks first."""

    def __init__(self, before):
        self._before = before

    def __call__(self, kind, error, trace):
        try:
            native.last_words(describe_exception(error.with_traceback(trace)))
        except Exception:
            pass  # it is about to be printed, and that must happen
        self._before(kind, error, trace)


def watch_exceptions() -> None:
    """After init(): an exception that nobody catches reaches the other ranks and horovodrun."""
    if not isinstance(sys.excepthook, _Hook):
        sys.excepthook = _Hook(sys.excepthook)
