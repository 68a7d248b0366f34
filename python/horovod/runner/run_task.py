# SPDX-License-Identifier: Apache-2.0
"""One rank of horovod.run(): get the call, make it, leave the result or what went wrong.

Started as `python -m horovod.runner.run_task FOLDER`; see mailbox.py for how the call gets here.
"""

import json
import os
import socket
import sys
import time
import traceback

import cloudpickle

from horovod.common.exceptions import WorkerRemovedExit
from horovod.runner.mailbox import CALL, MailboxError, mailbox_of_rank

RANK_NAMES = ("HOROVOD_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID")
HEAD_BYTES = 8  # length of the plain part in front of a pickle


def pack(plain, pickled):
    """A part that anybody may read (JSON) and a pickle behind it."""
    head = json.dumps(plain).encode()
    return len(head).to_bytes(HEAD_BYTES, "little") + head + pickled


def unpack(blob):
    n = int.from_bytes(blob[:HEAD_BYTES], "little")
    return json.loads(blob[HEAD_BYTES : HEAD_BYTES + n]), blob[HEAD_BYTES + n :]


def current_rank():
    for name in RANK_NAMES:
        if os.environ.get(name, "").isdigit():
            return int(os.environ[name])
    return 0


def _pickled_or_none(value):
    """The pickle, if what it holds can be read back; exceptions of odd classes often can't."""
    try:
        blob = cloudpickle.dumps(value)
        cloudpickle.loads(blob)
        return blob
    except Exception:
        return None


def _failure(error):
    exit_code = 1
    if isinstance(error, SystemExit):
        exit_code = error.code if isinstance(error.code, int) else 0 if error.code is None else 1
    plain = {
        "status": "error",
        "time": time.time(),
        "host": os.environ.get("HOROVOD_HOSTNAME") or socket.gethostname(),
        "pid": os.getpid(),
        "type": type(error).__name__,
        "traceback": "".join(traceback.format_exception(error)),
        "code": exit_code & 0xFF,
    }
    return exit_code & 0xFF, pack(plain, _pickled_or_none(error) or b"")


def _call(blob):
    plain, pickled = unpack(blob)
    for folder in plain["path"]:
        if folder not in sys.path:
            sys.path.append(folder)
    func, args, kwargs = cloudpickle.loads(pickled)
    return func(*args, **kwargs)


def main(folder):
    box = mailbox_of_rank(folder)
    blob = box.get(CALL)
    if blob is None:
        raise MailboxError("the function to run is not there")
    try:
        result = _call(blob)
        answer = pack({"status": "ok"}, cloudpickle.dumps(result))
    except WorkerRemovedExit:
        return 0  # it has left an elastic job, which goes on without it
    except BaseException as error:
        code, answer = _failure(error)
        box.put(f"result.{current_rank()}", answer)
        sys.stderr.write(f"User function raise error: {error}\n")
        traceback.print_exc()
        sys.stderr.flush()
        return code
    box.put(f"result.{current_rank()}", answer)  # in an elastic job the rank may have changed
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
