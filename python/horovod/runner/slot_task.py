# SPDX-License-Identifier: Apache-2.0
"""A rank of launch_gloo(): fetch the caller's environment from the rendezvous, then be the command.

Started as `python -m horovod.runner.slot_task COMMAND...` with the job's key and the address of the
rendezvous in the environment. The caller's environment is on no command line, where every user of
the machine could read it, and is handed over only to a holder of the key.
"""

import os
import sys

from horovod.runner.http.store import Client, key_from_environment

SCOPE, NAME = "launch_gloo", "environment"


def pack(variables):
    """As the kernel has it: NAME=VALUE, each ended by a zero byte."""
    return b"".join(os.fsencode(f"{name}={value}") + b"\0" for name, value in variables.items())


def unpack(blob):
    pairs = (entry.partition(b"=") for entry in blob.split(b"\0") if entry)
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}


def _fail(code, text):
    print(f"horovod: {text}", file=sys.stderr)
    return code


def main(command):
    host = os.environ.get("HOROVOD_GLOO_RENDEZVOUS_ADDR", "")
    port = os.environ.get("HOROVOD_GLOO_RENDEZVOUS_PORT", "")
    key = key_from_environment()
    if not command or not host or not port.isdigit() or key is None:
        return _fail(
            1,
            "this rank was given no job key or no rendezvous; what exec_command starts must "
            "inherit os.environ, in which HOROVOD_KEY is, or be given it",
        )
    blob = Client(host, int(port), key).get(SCOPE, NAME)
    if blob is None:
        return _fail(1, "the rendezvous does not hold the environment of launch_gloo()")
    env = {**os.environ, **unpack(blob)}
    try:
        os.execvpe(command[0], command, env)
    except FileNotFoundError as error:
        return _fail(127, f"{command[0]}: {error.strerror}")
    except OSError as error:
        return _fail(126, f"{command[0]}: {error.strerror}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
