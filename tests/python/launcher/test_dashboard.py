# SPDX-License-Identifier: Apache-2.0
"""horovodrun --dashboard, --status --watch: figures of a real job, and clients that misbehave."""

import http.client
import json
import re
import shutil
import socket
import sys
import tempfile

import pytest

pytest.importorskip("horovod")

# Steps of 1 MB, rank 1 slower, until the file `go` is there; then the others wait for rank 1.
RANK = """
import os, sys, time
import numpy as np
from horovod.common.arrays import Arrays
from horovod.common.basics import HorovodBasics
from horovod.common.library import native
arrays, basics = Arrays(), HorovodBasics(__file__, "any")
basics.init()
folder, step, is_over = sys.argv[1], 0, 0
while not is_over:
    time.sleep(0.1 if basics.rank() == 1 else 0.02)
    step += 1
    grad = np.full(1 << 17, os.path.exists(folder + "/go") and basics.rank() == 0, np.float64)
    is_over = arrays.same_shape(native.ALLREDUCE, [grad], "grad")[0][0]
while basics.rank() == 1 and not os.path.exists(folder + "/end"):
    time.sleep(0.05)
arrays.same_shape(native.ALLREDUCE, [np.ones(4)], "late")
basics.shutdown()
"""


class Job:
    def __init__(self, run, folder, *args, env=None):
        self.run, self.folder = run, folder
        script = folder / "rank.py"
        script.write_text(RANK)
        self.log = folder / "err"
        env = {"HOROVOD_SHM_DISABLE": "1", **(env or {})}
        command = ("-np", 2, "--dashboard", *args, sys.executable, script, folder)
        with self.log.open("w") as log:
            self.process = run.start(*command, env=env, stderr=log)
        run.wait_for(lambda: "token=" in self.log.read_text(), what="address")
        found = re.search(r"http://127\.0\.0\.1:(\d+)/\?token=(\w+)\n", self.log.read_text())
        self.port, self.token = int(found[1]), found[2]

    def get(self, path="/job.json", token=None, method="GET"):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.request(method, f"{path}?token={token or self.token}")
        answer = connection.getresponse()
        body = answer.read()
        connection.close()
        return answer, body

    def seen(self, is_there):
        """The first state of the job that is so."""
        found = []

        def look():
            answer, body = self.get()
            assert answer.status == 200
            found.append(json.loads(body))
            return is_there(found[-1])

        self.run.wait_for(look, what="state of the job", seconds=30)
        return found[-1]

    def end(self):
        (self.folder / "go").touch()
        (self.folder / "end").touch()
        self.process.wait(timeout=60)
        assert self.process.returncode == 0, self.log.read_text()


@pytest.fixture
def job(run, tmp_path):
    folder = tempfile.mkdtemp(prefix="hvdrun-", dir="/tmp")  # a socket's path is short
    run.env["XDG_RUNTIME_DIR"] = folder
    started = Job(run, tmp_path)
    yield started
    if started.process.poll() is None:
        started.process.kill()
        started.process.wait()
    shutil.rmtree(folder)


def test_figures(job):
    """Of a job with a slow rank: its steps, its links, the slow rank, and who waits in the end."""
    state = job.seen(lambda s: min(r.get("steps", 0) for r in s["ranks"]) > 20 and s.get("slow"))
    assert state["version"] == 1 and state["pid"] == job.process.pid
    assert state["command"][-2:] == [str(job.folder / "rank.py"), str(job.folder)]
    assert [r["rank"] for r in state["ranks"]] == [0, 1] and state["ranks_left_out"] == 0
    assert state["slow"] == "1 late submit"
    assert any(event["text"] == "Slow: rank 1 late submit." for event in state["events"])
    for rank in state["ranks"]:
        assert rank["host"] == "localhost" and rank["state"] == "running"
        assert rank["user_s"] + rank["system_s"] > 0
        assert rank["steps_s"] / rank["steps"] > 0.09  # rank 1 sleeps 0.1 s in each
        (peer,) = rank["peers"]
        assert peer["rank"] == 1 - rank["rank"] and peer["receive_s"] > 0
        # Two ranks exchange halves twice: what a rank reduces, it sends and receives.
        for way in ("sent_bytes", "received_bytes"):
            assert abs(peer[way] - rank["op_bytes"]) <= 2 << 20, rank
    alone = [rank["alone_s"] / rank["steps_s"] for rank in state["ranks"]]
    assert alone[0] < 0.6 < alone[1], alone
    assert state["ranks"][0]["peers"][0]["receive_s"] > state["ranks"][1]["peers"][0]["receive_s"]

    (job.folder / "go").touch()
    state = job.seen(lambda s: s["ranks"][1].get("waited_for_by") == 1)
    assert "late" in state["ranks"][0]["op"] and state["ranks"][0]["missing"] == "1"
    result = job.run("--status", job.process.pid, timeout=30)
    assert "1 other rank waits for rank 1." in result.stdout, result.stdout
    job.end()


def test_page_and_refusals(job):
    answer, page = job.get("/")
    assert answer.status == 200 and answer.headers["Content-Type"].startswith("text/html")
    assert b"/job.json" in page and not re.search(rb"(src|href)=.(https?:|//)", page)
    for path in ("/", "/job.json"):
        for token in ("x", job.token[:-1], job.token + "0", job.token[:-1] + "g"):
            answer, body = job.get(path, token)
            assert answer.status == 403 and job.token.encode() not in body
    assert job.get("/other")[0].status == 404
    assert job.get("/", method="POST")[0].status == 405

    clients = []
    for text in (b"", b"G", b"\0" * 100, b"x" * 100000, b"GET / HTTP/1.1\r\n") * 8:
        client = socket.create_connection(("127.0.0.1", job.port))
        client.setblocking(False)
        try:
            client.send(text)
        except OSError:
            pass  # turned away
        clients.append(client)
    for client in clients:
        client.close()
    assert job.seen(lambda s: s["ranks"][0].get("steps", 0) > 1)
    job.end()


def test_watch(job, run):
    """Tables one after the other, until the job ends."""
    job.seen(lambda s: s["ranks"][0].get("steps", 0) > 1)
    watch = run.start("--status", "--watch")
    row = re.compile(r" +1 localhost +\d+ +\d+\.\d +\d+% +\d+% +\d+% +[\d.]+ +[\d.]+ +[\d.]+ ")
    text = ""
    while not row.search(text):
        line = watch.stdout.readline()
        assert line, (text, watch.stderr.read())
        text += line
    assert text.startswith(f"horovodrun {job.process.pid}: 2 ranks on 1 host, running for ")
    assert "\033" not in text
    job.end()
    assert "the job has ended" in watch.communicate(timeout=60)[1] and watch.returncode == 0


def test_command_line(run, tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        result = run("-np", 1, "--dashboard", port, "true", timeout=60)
    assert result.returncode == 1
    assert f"--dashboard can't listen on 127.0.0.1:{port}" in result.stderr
    result = run("-np", 1, "--dashboard", "true", timeout=60)
    assert result.returncode == 0 and "dashboard: http://127.0.0.1:" in result.stderr
    for args, text in (
        (("--dashboard=x", "true"), "invalid int value: 'x'"),
        (("--dashboard", 70000, "true"), "between 0 and 65535"),
        (("--dashboard", "--mpi", "true"), "does not work with --mpi"),
        (("--watch", "true"), "--watch is only for --status"),
    ):
        result = run("-np", 1, *args, timeout=60)
        assert result.returncode == 2 and text in result.stderr, result.stderr
