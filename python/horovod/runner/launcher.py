# SPDX-License-Identifier: Apache-2.0
"""Where the native launcher is, and how its output reaches the current sys.stdout."""

import codecs
import collections
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

from horovod.runner.common.util.safe_shell_exec import start_apart

STOP_S = 6  # the launcher itself ends a job in at most 5 s
TAIL_LINES = 40


def find_horovodrun():
    """The native program: HOROVODRUN, else beside this Python, else in the PATH."""
    given = os.environ.get("HOROVODRUN")
    if given:
        return given
    beside = Path(sys.executable).with_name("horovodrun")
    found = str(beside) if beside.exists() else shutil.which("horovodrun")
    if found is None:
        raise RuntimeError(
            "horovodrun was found neither beside this Python nor in the PATH; "
            "set HOROVODRUN to where it is"
        )
    return found


class _Forward(threading.Thread):
    """Copies a pipe to a text stream, which in a notebook is no descriptor; keeps the last lines.

    With `is_binary` whole chunks go to the stream's buffer, so that nothing is lost of what is no
    text.
    """

    def __init__(self, pipe, stream):
        super().__init__(daemon=True, name="horovod-output")
        self._pipe = pipe
        self._stream = stream
        self.tail = collections.deque(maxlen=TAIL_LINES)

    def run(self):
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        rest = ""
        while True:
            chunk = os.read(self._pipe.fileno(), 1 << 16)
            text = decoder.decode(chunk, final=not chunk)
            lines = (rest + text).split("\n")
            rest = lines.pop()
            self.tail.extend(lines)
            self._write(text)
            if not chunk:
                break
        if rest:
            self.tail.append(rest)

    def _write(self, text):
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):
            pass  # closed by its owner: the job must not stop for want of a reader


def _stop(process):
    if process.poll() is None:
        process.terminate()
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def run_launcher(command, env, stdout=None, stderr=None):
    """Run horovodrun to its end; returns its exit code and the last lines it wrote to stderr.

    It has its own session, so a Ctrl-C comes to us alone and ends it in good order. Its stdin is a
    pipe that only we hold: if we die, of whatever, it sees that and ends the job. No signal handler
    is installed, so this works from any thread.
    """
    process = start_apart(command, env)
    forwards = [
        _Forward(process.stdout, stdout if stdout is not None else sys.stdout),
        _Forward(process.stderr, stderr if stderr is not None else sys.stderr),
    ]
    for thread in forwards:
        thread.start()
    try:
        code = process.wait()
    except BaseException:
        _stop(process)
        raise
    finally:
        for thread in forwards:
            thread.join(STOP_S)
        for pipe in (process.stdin, process.stdout, process.stderr):
            pipe.close()
    return code, list(forwards[1].tail)
