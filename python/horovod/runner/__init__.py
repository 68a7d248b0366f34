# SPDX-License-Identifier: Apache-2.0
"""horovod.run(): call a Python function on several ranks from within a program."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path


def run(func, args=(), kwargs=None, np=1, hosts=None, env=None, verbose=False):
    """Run func(*args, **kwargs) on np ranks and return their results as a list, by rank.

    The ranks are started by the launcher `horovodrun`, so `hosts` means what it means there
    ("a:2,b:2"); the folder for temporary files must then be the same on all hosts.
    """
    import cloudpickle

    launcher = Path(sys.executable).parent / "horovodrun"
    command = [str(launcher) if launcher.exists() else "horovodrun", "-np", str(np)]
    if hosts is not None:
        command += ["-H", hosts]
    if verbose:
        command += ["--verbose"]
    with tempfile.TemporaryDirectory(prefix="horovod-run-") as folder:
        call = Path(folder) / "call"
        call.write_bytes(cloudpickle.dumps((func, tuple(args), dict(kwargs or {}))))
        command += [sys.executable, "-m", "horovod.runner.run_task", folder]
        environment = dict(os.environ if env is None else env)
        subprocess.run(command, env=environment, check=True)
        results = sorted(Path(folder).glob("result.*"), key=lambda p: int(p.suffix[1:]))
        return [cloudpickle.loads(path.read_bytes()) for path in results]
