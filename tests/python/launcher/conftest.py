# SPDX-License-Identifier: Apache-2.0
"""Starts the real horovodrun: HOROVODRUN, else the newest of the build trees, else the PATH."""

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest
from ssh_server import SshServer, wait_for

ROOT = Path(__file__).resolve().parents[3]


def find_horovodrun():
    given = os.environ.get("HOROVODRUN")
    if given:
        return given
    built = sorted(ROOT.glob("build/*/horovodrun"), key=lambda p: p.stat().st_mtime)
    if built:
        return str(built[-1])
    beside = Path(sys.executable).with_name("horovodrun")
    return str(beside) if beside.exists() else shutil.which("horovodrun")


@pytest.fixture(scope="session")
def horovodrun():
    path = find_horovodrun()
    if not path:
        pytest.skip("horovodrun is not built")
    return path


class Runner:
    """horovodrun with a clean environment and a mark by which its processes can be found."""

    def __init__(self, path, tmp_path):
        self.path = path
        self.mark = f"hvdtest-{uuid.uuid4().hex}"
        self.env = {
            k: v
            for k, v in os.environ.items()
            if not k.startswith(("HOROVOD_", "SLURM_", "PBS_", "LSB_", "OMPI_"))
        }
        self.env["HVD_TEST_MARK"] = self.mark
        self.cwd = tmp_path

    def __call__(self, *args, env=None, timeout=240, text=True, **kwargs):
        return subprocess.run(
            [self.path, *map(str, args)],
            env={**self.env, **(env or {})},
            cwd=self.cwd,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=text,
            timeout=timeout,
            **kwargs,
        )

    def start(self, *args, env=None, **kwargs):
        kwargs.setdefault("stdout", subprocess.PIPE)
        kwargs.setdefault("stderr", subprocess.PIPE)
        return subprocess.Popen(
            [self.path, *map(str, args)],
            env={**self.env, **(env or {})},
            cwd=self.cwd,
            stdin=subprocess.DEVNULL,
            text=True,
            **kwargs,
        )

    def processes(self):
        """Pids of everything that carries our mark: agents, workers and all they started."""
        found = []
        needle = f"HVD_TEST_MARK={self.mark}".encode()
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            with contextlib.suppress(OSError):
                if needle in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
        return found

    def wait_gone(self, seconds=30):
        """Processes that are left after so long; they would be there for minutes."""
        deadline = time.monotonic() + seconds
        while self.processes() and time.monotonic() < deadline:
            time.sleep(0.02)
        return self.processes()

    def start_logged(self, *args, env=None):
        """A launcher whose stderr goes to the file that is returned with it."""
        path = self.cwd / f"stderr.{uuid.uuid4().hex}"
        with path.open("w") as log:
            return self.start(*args, env=env, stdout=subprocess.DEVNULL, stderr=log), path

    @staticmethod
    def wait_for(condition, seconds=60, what="condition"):
        wait_for(condition, seconds, what)


@pytest.fixture
def run(horovodrun, tmp_path):
    runner = Runner(horovodrun, tmp_path)
    yield runner
    left = runner.wait_gone()
    for pid in left:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    assert not left, f"processes survived: {left}"


@pytest.fixture(scope="session")
def sshd(tmp_path_factory):
    """A real sshd on 127.0.0.2, which is not one of our interfaces' addresses, so it is remote."""
    if os.geteuid() != 0:
        pytest.skip("a private sshd needs root")
    for tool in ("/usr/sbin/sshd", shutil.which("ssh-keygen"), shutil.which("unshare")):
        if not tool or not os.path.exists(tool):
            pytest.skip("sshd, ssh-keygen or unshare is missing")
    folder = tmp_path_factory.mktemp("sshd")
    server = SshServer(folder)
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def make_runner():
    return Runner


@pytest.fixture(scope="session")
def make_ssh_server():
    return SshServer


@pytest.fixture(scope="session")
def rank(horovodrun, tmp_path_factory):
    """A command that calls hvd_init(), an allreduce and hvd_shutdown()."""
    example = Path(horovodrun).parent / "examples" / "c" / "train"
    if example.exists():
        return str(example)
    script = tmp_path_factory.mktemp("rank") / "rank.py"
    script.write_text(
        "import ctypes, horovod, pathlib\n"
        "folder = pathlib.Path(horovod.__file__).parent\n"
        "lib = ctypes.CDLL(str(next(folder.rglob('libhorovod*.so'))))\n"
        "lib.hvd_last_error.restype = ctypes.c_char_p\n"
        "assert lib.hvd_init(None) == 0, lib.hvd_last_error().decode()\n"
        "lib.hvd_shutdown()\n"
    )
    pytest.importorskip("horovod")
    return f"{shlex.quote(sys.executable)} {shlex.quote(str(script))}"
