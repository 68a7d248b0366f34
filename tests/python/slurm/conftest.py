# SPDX-License-Identifier: Apache-2.0
"""A real Slurm of two nodes on this machine: its own munged, slurmctld and two slurmd.

Everything lies in a temporary folder and listens on ports of its own, so it disturbs no other
Slurm. The daemons run in the foreground as our children, die with us if we are killed, and whatever
of them or of their jobs is left at the end is found by a mark in its environment and ended.
"""

import contextlib
import getpass
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import time
import uuid
from pathlib import Path

import pytest
from launching import run_apart

NEEDED = ("munged", "munge", "slurmctld", "slurmd", "srun", "sbatch", "setpriv")
SBIN = f"{os.environ['PATH']}:/usr/sbin:/sbin"
OUTER = ("HOROVOD_", "SLURM_", "PMI_", "PMIX_", "OMPI_", "MPI_LOCAL", "MASTER_", "LSB_", "PBS_")


def _launcher_fixtures():
    path = Path(__file__).resolve().parent.parent / "launcher" / "conftest.py"
    spec = importlib.util.spec_from_file_location("launcher_fixtures", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


fixtures = _launcher_fixtures()
sshd, horovodrun = fixtures.sshd, fixtures.horovodrun

CONFIG = """\
ClusterName=hvdtest
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/slurmctld.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdSpoolDir={folder}/spool/%n
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmdLogFile={folder}/slurmd-%n.log
TmpFS={folder}/tmp/%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,bf_interval=1
ReturnToService=2
InactiveLimit=0
KillWait=2
MinJobAge=60
SlurmctldTimeout=60
SlurmdTimeout=300
MailProg=/bin/true
LaunchParameters=disable_send_gids
NodeName=n[1-2] NodeHostname={host} NodeAddr=127.0.0.1 Port=[{port_1}-{port_2}] CPUs=8
PartitionName=test Nodes=ALL Default=YES MaxTime=10 State=UP OverSubscribe=YES:4
"""


def wait_for(condition, seconds, what):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"no {what} after {seconds} s"
        time.sleep(0.05)


def free_ports(count):
    """Neighbours, all free; below the range from which the system takes its own."""
    first = 15000 + os.getpid() % 10000
    for base in range(first, first + 5000, count):
        with contextlib.ExitStack() as stack:
            try:
                for port in range(base, base + count):
                    probe = stack.enter_context(socket.socket())
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return list(range(base, base + count))
    raise RuntimeError("no free ports")


class Slurm:
    def __init__(self, folder):
        self.folder = folder
        self.mark = f"hvdtest-{uuid.uuid4().hex}"
        self.conf = folder / "slurm.conf"
        self.daemons = []
        clean = {k: v for k, v in os.environ.items() if not k.startswith(OUTER)}
        self.env = {**clean, "SLURM_CONF": str(self.conf), "HVD_SLURM_MARK": self.mark}
        self.env["PATH"] = SBIN

    # ---- the daemons ----

    def start(self):
        for name in ("munge", "state", "spool/n1", "spool/n2", "tmp/n1", "tmp/n2", "key"):
            (self.folder / name).mkdir(parents=True)
        # munged insists: others must reach the socket, and nobody the key.
        self.folder.chmod(0o755)
        (self.folder / "key").chmod(0o700)
        (self.folder / "munge").chmod(0o755)
        key = self.folder / "key" / "munge.key"
        key.touch(mode=0o600)
        key.write_bytes(os.urandom(128))
        controller_port, port_1, port_2 = free_ports(3)
        self.conf.write_text(
            CONFIG.format(
                folder=self.folder,
                host=socket.gethostname().split(".")[0],
                user=getpass.getuser(),
                controller_port=controller_port,
                port_1=port_1,
                port_2=port_2,
            )
        )
        at = self.folder / "munge"
        self._daemon(
            *("munged", "--foreground", f"--key-file={key}", f"--socket={at}/socket"),
            *(f"--pid-file={at}/pid", f"--log-file={at}/log", f"--seed-file={at}/seed"),
            "--force",
        )
        wait_for((at / "socket").exists, 20, "munge socket")
        self._daemon("slurmctld", "-D", "-c", "-f", self.conf)
        for node in ("n1", "n2"):
            self._daemon("slurmd", "-D", "-N", node, "-f", self.conf)
        wait_for(self._is_up, 60, f"idle nodes (logs in {self.folder})")

    def _daemon(self, *command):
        output = (self.folder / f"out-{len(self.daemons)}").open("w")
        process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "--", *map(str, command)],
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        output.close()
        self.daemons.append(process)

    def _is_up(self):
        done = self("sinfo", "-h", "-N", "-o", "%N %t", check=False, timeout=20)
        return sorted(done.stdout.split("\n")) == ["", "n1 idle", "n2 idle"]

    def stop(self):
        with contextlib.suppress(subprocess.SubprocessError):
            self("scancel", "--user", getpass.getuser(), check=False, timeout=10)
            deadline = time.monotonic() + 10
            while self.queue() and time.monotonic() < deadline:
                time.sleep(0.1)
        for process in reversed(self.daemons):
            process.terminate()
        for process in self.daemons:
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(5)
        for pid in self.processes():
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)

    def processes(self):
        """Pids of the daemons, of their step managers, and of all that jobs started."""
        needle = f"HVD_SLURM_MARK={self.mark}".encode()
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            with contextlib.suppress(OSError):
                if needle in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
        return found

    # ---- what tests use ----

    def __call__(self, *command, env=None, **options):
        return run_apart(command, {**self.env, **(env or {})}, **options)

    def begin(self, *command, env=None, **kwargs):
        return subprocess.Popen(
            [str(part) for part in command],
            env={**self.env, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **kwargs,
        )

    def queue(self):
        return self("squeue", "-h", "-o", "%i", check=False, timeout=20).stdout.split()


@pytest.fixture(scope="session")
def slurm_service(tmp_path_factory):
    missing = [name for name in NEEDED if shutil.which(name, path=SBIN) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
    service = Slurm(tmp_path_factory.mktemp("slurm"))
    try:
        service.start()
        yield service
    finally:
        service.stop()


@pytest.fixture
def slurm(slurm_service, tmp_path, monkeypatch):
    """The running Slurm, with a home folder of this test's own and no job of another test."""
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    package = Path(__import__("horovod").__file__).parent.parent
    monkeypatch.setitem(slurm_service.env, "HOME", str(home))
    monkeypatch.setitem(slurm_service.env, "XDG_RUNTIME_DIR", str(home))
    monkeypatch.setitem(slurm_service.env, "PYTHONPATH", str(package))
    yield slurm_service
    slurm_service("scancel", "--user", getpass.getuser(), check=False, timeout=30)
    wait_for(lambda: not slurm_service.queue(), 60, "end of the jobs")
