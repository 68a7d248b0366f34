# SPDX-License-Identifier: Apache-2.0
"""What a worker of a test does to itself, and when.

TEST_FAULTS is a list `what:point:step:rank`, separated by blanks. A fault happens once in a job, in
the process that has that rank when it passes that point at that step.

what   kill, raise, stop (SIGSTOP), term (SIGTERM), leave (hvd.elastic.leave()), exit (code 0),
       notice (wait until the launcher has announced a change)
point  step (before the collective), applied (after it, before the commit), sync, reset, new (the
       first sync of a worker that came later; its step is 0)
"""

import os
import signal
import time
from pathlib import Path

FOLDER = Path(os.environ["TEST_FOLDER"])
FAULTS = os.environ.get("TEST_FAULTS", "").split()
WORKER = os.environ.get("HOROVOD_WORKER", "0")


class InjectedError(Exception):
    """As if the script had a defect."""


def write(name, text):
    """Append a line to a file of the test's folder."""
    with open(FOLDER / name, "a", encoding="utf-8") as file:
        file.write(text + "\n")


def _is_first(fault):
    """Has no other process done this yet?"""
    try:
        os.close(os.open(FOLDER / f"fault.{fault}", os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def _do(what):
    if what == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif what == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif what == "term":
        os.kill(os.getpid(), signal.SIGTERM)
    elif what == "raise":
        raise InjectedError("injected")
    elif what == "exit":
        os._exit(0)
    elif what == "leave":
        from horovod.common.elastic import leave

        assert leave()
    elif what == "notice":
        from horovod.common.library import native

        while native.notice(0)[0] == 0:
            time.sleep(0.01)
    else:
        raise ValueError(what)


def pass_point(point, step, rank):
    for fault in FAULTS:
        what, *where = fault.split(":")
        if where == [point, str(step), str(rank)] and _is_first(fault):
            _do(what)
