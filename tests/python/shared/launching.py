# SPDX-License-Identifier: Apache-2.0
"""Start programs on several ranks, with the real launcher and a deadline; for the conftest files.

A file `ranks_*.py` is a pytest module that every rank runs from top to bottom; a rank that fails
stops, and the launcher ends the others.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

DEADLINE_S = 840  # bounds a hang; a busy machine takes minutes
TENSORFLOW = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}


def find_launcher():
    beside = Path(sys.executable).parent / "horovodrun"
    found = str(beside) if beside.exists() else shutil.which("horovodrun")
    assert found is not None, "horovodrun is not installed beside this Python, nor in PATH"
    return found


def clean_environment(env=None):
    """Our environment without settings of Horovod, and with those that are given."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("HOROVOD_")}
    environment.update({"OMP_NUM_THREADS": "1", "PYTHONFAULTHANDLER": "1", **(env or {})})
    return environment


def job(ranks, *command):
    """The command that starts another on so many ranks."""
    return [find_launcher(), "-np", str(ranks), *(str(part) for part in command)]


def run(command, env=None, deadline_s=DEADLINE_S):
    """The finished process, with its output as text."""
    return subprocess.run(
        command,
        env=clean_environment(env),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=deadline_s,
        check=False,
    )


def run_apart(command, env, timeout=100, check=True, **options):
    """The finished process, with the text of each stream; by default it must succeed."""
    done = subprocess.run(
        [str(part) for part in command],
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
        **options,
    )
    if check:
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done


def launch(ranks, *command, env=None, deadline_s=DEADLINE_S):
    """Run a command on some ranks; returns the finished process with its output as text."""
    return run(job(ranks, *command), env, deadline_s)


def torchrun(path, ranks, *arguments, env=None, options=(), deadline_s=300):
    """Run a program by PyTorch's own launcher; returns the finished process."""
    command = [sys.executable, "-W", "ignore", "-m", "torch.distributed.run"]
    command += [f"--nproc-per-node={ranks}", "--master-port=0", *options]
    command += ["--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0"]
    return run([*command, str(path), *map(str, arguments)], env, deadline_s)


def run_module(path, ranks, env=None):
    """Run a module of tests on so many ranks; all must pass."""
    options = ["-q", "-x", "--no-header", "-p", "no:cacheprovider", "-o", "timeout=300"]
    result = launch(ranks, sys.executable, "-m", "pytest", *options, path, env=env)
    assert result.returncode == 0, f"{path.name} on {ranks} ranks:\n{result.stdout[-12000:]}"
