# SPDX-License-Identifier: Apache-2.0
"""Two "hosts" as network namespaces: own addresses, differing interface names, and on both a bridge
with the same address that leads nowhere, as docker0 does."""

import contextlib
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from namespaces import Pair, built, ip


class Hosts(Pair):
    """h1 and h2 on 10.77.N.0/24; the interface of one is east0, of the other west7."""

    def __init__(self):
        super().__init__("hvdt", "10.77", ("east0", "west7"))

    def build(self):
        super().build()
        for name in self.names:
            ip("-n", name, "link", "add", "docker0", "type", "bridge")
            ip("-n", name, "addr", "add", "172.31.99.1/24", "dev", "docker0")
            ip("-n", name, "link", "set", "docker0", "up")


@pytest.fixture(scope="module")
def hosts(tmp_path_factory, make_ssh_server):
    with built(Hosts()) as hosts:
        prefix = ["ip", "netns", "exec", hosts.names[1]]
        hosts.sshd = make_ssh_server(tmp_path_factory.mktemp("sshd2"), hosts.addresses[1], prefix)
        hosts.sshd.start()
        yield hosts
        hosts.sshd.stop()


@pytest.fixture
def job(hosts, horovodrun, make_runner, tmp_path):
    """horovodrun inside the first host."""
    runner = make_runner(horovodrun, tmp_path)
    runner.env.update(hosts.sshd.env())

    def line(*args):
        return ["ip", "netns", "exec", hosts.names[0], horovodrun, *map(str, args)]

    def start(*args):
        return subprocess.Popen(
            line(*args), env=runner.env, cwd=tmp_path, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip

    def call(*args, **kwargs):
        command = line(*args)
        return subprocess.run(
            command, env=runner.env, cwd=tmp_path, capture_output=True, text=True, timeout=60,
            stdin=subprocess.DEVNULL, **kwargs,
        )  # fmt: skip

    call.where = f"{hosts.addresses[0]}:1,{hosts.addresses[1]}:1"
    call.options = hosts.sshd.options
    call.start = start
    yield call
    assert runner.wait_gone(5) == []


def test_job_over_two_hosts(job, hosts):
    show = 'echo "$HOROVOD_HOSTNAME $HOROVOD_RENDEZVOUS"; ip -o -4 addr | grep -c 10.77'
    result = job("-np", 2, "-H", job.where, *job.options, "sh", "-c", show)
    assert result.returncode == 0, result.stderr
    lines = sorted(result.stdout.splitlines())
    for rank, address in enumerate(hosts.addresses):
        mine = [line for line in lines if line.startswith(f"[{rank}]")]
        assert any(line.split(":", 1)[1].split()[0] == address for line in mine if "10.77" in line)
        # Listens where the other host reaches us, and nowhere else: not on the dead bridge.
        assert any(f" {hosts.addresses[0]}:" in line and "172.31" not in line for line in mine)


def test_interface_by_name_of_this_host_only(job, hosts):
    """The other host has no east0; names are never compared between hosts."""
    show = "echo $HOROVOD_GLOO_IFACE"
    result = job("-np", 2, "-H", job.where, "--network-interfaces", "east0,west7", *job.options,
                 "sh", "-c", show)  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert sorted(result.stdout.splitlines()) == [f"[{r}]<stdout>:east0,west7" for r in (0, 1)]


def test_dial_back_that_cannot_work_is_named(job, hosts):
    """Told to use the dead bridge, the job ends naming the host and the address."""
    result = job("-np", 2, "-H", job.where, "--network-interfaces", "docker0", *job.options, "true")
    assert result.returncode == 1
    assert f"host {hosts.addresses[1]}: cannot dial back to 172.31.99.1:" in result.stderr


def test_doctor_sees_the_dead_bridge(job, hosts):
    result = job("--doctor", "-H", job.where, *job.options)
    assert result.returncode == 0, result.stdout + result.stderr
    line = next(x for x in result.stdout.splitlines() if f"to {hosts.addresses[1]}:" in x)
    reached, missed = line.split(", not ")
    assert hosts.addresses[1] in reached and "172.31.99.1" in missed


def test_rank_killed_there(job, hosts):
    script = "test $HOROVOD_RANK = 1 && kill -9 $$; sleep 300"
    result = job("-np", 2, "-H", job.where, *job.options, "sh", "-c", script)
    assert result.returncode == 137
    assert f"rank 1 on {hosts.addresses[1]} was killed by signal 9 (SIGKILL)" in result.stderr


def test_doctor_compares_mtus(job, hosts):
    ip("-n", hosts.names[0], "link", "set", "east0", "mtu", "9000")
    try:
        result = job("--doctor", "-H", job.where, *job.options)
    finally:
        ip("-n", hosts.names[0], "link", "set", "east0", "mtu", "1500")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "have different MTUs on their way: 9000 and 1500 bytes" in result.stdout
    again = job("--doctor", "-H", job.where, *job.options)
    assert "different MTUs" not in again.stdout and "MTU 1500" in again.stdout


def test_doctor_sees_that_large_packets_are_lost(job, hosts):
    """Both sides believe in 9000 bytes, the way between them takes 4000 and says nothing."""
    if shutil.which("tc") is None:
        pytest.skip("needs tc(8)")
    for name, interface in zip(hosts.names, hosts.interfaces, strict=True):
        ip("-n", name, "link", "set", interface, "mtu", "9000")
    drop = ["tc", "-n", hosts.names[0], "qdisc", "add", "dev", "east0", "root", "tbf"]
    drop += ["rate", "10gbit", "burst", "4000", "limit", "1000000", "mtu", "4000"]
    try:
        subprocess.run(drop, check=True, capture_output=True)
        result = job("--doctor", "-H", job.where, *job.options)
    finally:
        subprocess.run(["tc", "-n", hosts.names[0], "qdisc", "del", "dev", "east0", "root"])
        for name, interface in zip(hosts.names, hosts.interfaces, strict=True):
            ip("-n", name, "link", "set", interface, "mtu", "1500")
    assert result.returncode == 1, result.stdout + result.stderr
    assert "bulk data does not get through" in result.stdout


def left_there(hosts, marks):
    """Which of these words are on command lines of processes on the second host."""
    pids = subprocess.run(
        ["ip", "netns", "pids", hosts.names[1]], capture_output=True, text=True, check=True
    )
    found = []
    for pid in pids.stdout.split():
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
            found += [mark for mark in marks if mark in words]
    return sorted(found)


def wait_until(condition, seconds, what):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not after {seconds} s"
        time.sleep(0.05)


def test_nothing_is_left_behind_a_cut(job, hosts):
    """Cut at three moments of a job's life: long after the first ping, as soon as the ranks run,
    and while the agent there waits for a host that never comes up."""
    jobs = []

    def begin(where, count, mark):
        words = ("-np", count, "-H", where, *job.options, "sleep", mark)
        jobs.append(job.start(*words))

    nowhere = hosts.addresses[0].rsplit(".", 1)[0] + ".99"
    try:
        begin(job.where, 2, "1001")
        wait_until(lambda: left_there(hosts, ["1001"]) == ["1001"], 20, "first job runs")
        time.sleep(6)  # the launcher pings every 5 s
        begin(f"{job.where},{nowhere}:1", 3, "1003")
        wait_until(lambda: left_there(hosts, ["--agent"]) == ["--agent"] * 2, 20, "agent waits")
        begin(job.where, 2, "1002")
        wait_until(lambda: "1002" in left_there(hosts, ["1002"]), 20, "last job runs")
        marks = ["--agent", "1001", "1002", "1003"]
        assert left_there(hosts, marks) == ["--agent"] * 3 + ["1001", "1002"]
        assert all(process.poll() is None for process in jobs)
        ip("-n", hosts.names[0], "link", "set", "east0", "down")
        wait_until(lambda: left_there(hosts, marks) == [], 35, "nothing is left there")
        for process in jobs:  # and the near side has noticed, too
            assert process.wait(45) != 0
    finally:
        ip("-n", hosts.names[0], "link", "set", "east0", "up")
        for process in jobs:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
            process.communicate(timeout=30)
