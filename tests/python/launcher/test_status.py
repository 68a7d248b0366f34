# SPDX-License-Identifier: Apache-2.0
"""horovodrun --status: asks a running job, from another terminal, what its ranks are doing."""

import os
import re
import shutil
import signal
import socket
import sys
import tempfile
from pathlib import Path

import pytest

pytest.importorskip("horovod")

# Rank 1 computes until the file `go` is there; the others wait for it.
RANK = """
import os, sys, time
import numpy as np
from horovod.common.arrays import Arrays
from horovod.common.basics import HorovodBasics
from horovod.common.library import native
arrays, basics = Arrays(), HorovodBasics(__file__, "any")
basics.init()

def reduce(name):
    arrays.same_shape(native.ALLREDUCE, [np.ones(4)], name)  # WAITS

for step in range(20):
    reduce("grad")
if basics.rank() == 1:
    open(sys.argv[1] + "/ready", "w").close()
    while not os.path.exists(sys.argv[1] + "/go"):
        time.sleep(0.05)  # HERE
reduce("late")
basics.shutdown()
"""


@pytest.fixture
def private(run):
    """The run folder of another machine, as it were: no other job is in it."""
    folder = tempfile.mkdtemp(prefix="hvdrun-", dir="/tmp")  # a socket's path is short
    run.env["XDG_RUNTIME_DIR"] = folder
    yield Path(folder) / "horovod"
    for job in Job.started:
        job.kill()
    Job.started.clear()
    shutil.rmtree(folder)


class Job:
    started = []

    def __init__(self, run, folder, *args, ranks=3, env=None):
        self.run, self.folder = run, folder
        folder.mkdir()
        script = folder / "rank.py"
        script.write_text(RANK)
        self.process = run.start("-np", ranks, *args, sys.executable, script, folder, env=env)
        self.started.append(self.process)
        run.wait_for((folder / "ready").exists, what="stuck rank")

    def story(self, pattern):
        """The status, once the pattern shows."""
        found = []

        def is_there():
            result = self.run("--status", self.process.pid, timeout=30)
            assert result.returncode == 0, result.stderr
            found.append(result.stdout)
            return re.search(pattern, result.stdout)

        self.run.wait_for(is_there, what=f"{pattern} in {found[-1:]}", seconds=20)
        return found[-1]

    def end(self):
        (self.folder / "go").touch()
        out, err = self.process.communicate(timeout=60)
        assert self.process.returncode == 0, err


def line_of(mark):
    return 1 + next(i for i, line in enumerate(RANK.splitlines()) if line.endswith(f"# {mark}"))


def test_no_job(run, private):
    result = run("--status")
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == "horovodrun: you have no running job on this machine\n"
    result = run("--status", 1)
    assert result.returncode == 1 and "process 1 is not a running horovodrun" in result.stderr
    result = run("--status", "train.py")
    assert result.returncode == 2 and "at most one number" in result.stderr


def test_story(run, private, tmp_path):
    job = Job(run, tmp_path / "a")
    story = job.story(r"2 other ranks wait for rank 1\.")
    assert story.startswith(f"horovodrun {job.process.pid}: 3 ranks on 1 host, running for ")
    assert "host localhost\n" in story
    waits = r"step \d+ \(\d+\.\d ms, \d+\.\d s ago\); (waits for|runs) .*\blate .*"
    for rank in (0, 2):
        assert re.search(rf"rank {rank} \(pid \d+\): {waits} at rank\.py:{line_of('WAITS')}", story)
    assert re.search(rf"rank 1 \(pid \d+\): step .* at rank\.py:{line_of('HERE')}", story), story

    pid = int(re.search(r"rank 1 \(pid (\d+)\)", story)[1])
    os.kill(pid, signal.SIGSTOP)
    story = job.story(r"rank 1 \(pid \d+\): is stopped by a signal")
    assert "2 other ranks wait for rank 1." in story
    os.kill(pid, signal.SIGCONT)

    again = Job(run, tmp_path / "b", ranks=2)
    result = run("--status")
    assert result.returncode == 0
    assert result.stdout.startswith("2 jobs run; choose one with: horovodrun --status PID\n")
    for one in (job, again):
        assert f"horovodrun {one.process.pid}: " in result.stdout
    job.end()
    again.end()
    assert list(private.iterdir()) == []


def test_hostile_clients(run, private, tmp_path):
    """Connections that say nothing, too much or nonsense, and files that are not sockets."""
    job = Job(run, tmp_path / "a", ranks=2)
    path = private / f"job-{job.process.pid}"
    clients = []
    for text in (b"", b"x", b"s" * 100000, b"l" * 3, b"s", b"s") * 5:
        client = socket.socket(socket.AF_UNIX)
        client.setblocking(False)
        try:
            client.connect(str(path))
            client.send(text)
        except OSError:
            pass  # turned away
        clients.append(client)
    for client in clients:
        client.close()
    (private / "job-1x").touch()
    (private / "job-2").touch()
    story = job.story(r"1 other rank waits for rank 1\.")
    assert "rank 0" in story
    assert run("--status").stdout.startswith(f"horovodrun {job.process.pid}: ")
    assert path.stat().st_mode & 0o077 == 0 or private.stat().st_mode & 0o077 == 0
    job.end()


def test_killed_launcher(run, private, tmp_path):
    job = Job(run, tmp_path / "a", ranks=2)
    job.process.kill()
    job.process.communicate(timeout=30)
    assert len(list(private.iterdir())) == 1
    assert run("--status").returncode == 1
    assert list(private.iterdir()) == []


def test_remote_hosts(run, private, sshd, tmp_path):
    hosts = f"localhost:1,{sshd.host}:1"
    job = Job(run, tmp_path / "a", "-H", hosts, *sshd.options, ranks=2, env=sshd.env())
    story = job.story(r"1 other rank waits for rank 1\.")
    parts = story.split("host ")
    assert "2 ranks on 2 hosts" in parts[0]
    assert parts[1].startswith("localhost\n  rank 0 ") and "late" in parts[1]
    assert parts[2].startswith(f"{sshd.host}\n  rank 1 (pid ")
    assert f"at rank.py:{line_of('HERE')}" in parts[2]
    job.end()


def test_elastic_job(run, private, tmp_path):
    """A stuck rank of an elastic job, and what is left of the job once another one is killed."""
    job = Job(run, tmp_path / "job", "--min-np", 2, "--summary")
    story = job.story(r"2 other ranks wait for rank 1\.")
    assert re.search(rf"rank 1 \(pid \d+\): .* at rank\.py:{line_of('HERE')} in <module>", story)
    pid = int(re.search(r"rank 2 \(pid (\d+)\)", story)[1])
    os.kill(pid, signal.SIGKILL)
    # Rank 1 does not run Python code of ours, but its status shows what the core has seen.
    story = job.story(r"rank 1 \(pid \d+\): .*broken: rank 2 \(pid \d+ on \S+\) died")
    assert not re.search(r"rank 2 \(pid \d+\): ", story), story
    job.process.send_signal(signal.SIGINT)
    out, err = job.process.communicate(timeout=60)
    assert re.search(r"rank 2 on \S+ \(worker \S+\) was killed by signal 9 \(SIGKILL\)", err), err
    assert re.search(r"horovodrun: summary: \d+ steps on 3 ranks\.", err), err
