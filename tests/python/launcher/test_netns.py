# SPDX-License-Identifier: Apache-2.0
"""Two "hosts" as network namespaces: own addresses, differing interface names, and on both a bridge
with the same address that leads nowhere, as docker0 does."""

import os
import shutil
import subprocess

import pytest


def ip(*words):
    subprocess.run(["ip", *map(str, words)], check=True, capture_output=True)


class Hosts:
    """h1 and h2 on 10.77.N.0/24; the interface of one is east0, of the other west7."""

    def __init__(self):
        number = os.getpid() % 200 + 20
        self.names = [f"hvdt{os.getpid()}a", f"hvdt{os.getpid()}b"]
        self.addresses = [f"10.77.{number}.1", f"10.77.{number}.2"]
        self.interfaces = ["east0", "west7"]

    def build(self):
        for name in self.names:
            ip("netns", "add", name)
        ip(
            "link", "add", self.interfaces[0], "netns", self.names[0], "type", "veth",
            "peer", "name", self.interfaces[1], "netns", self.names[1],
        )  # fmt: skip
        for name, address, interface in zip(
            self.names, self.addresses, self.interfaces, strict=True
        ):
            ip("-n", name, "addr", "add", f"{address}/24", "dev", interface)
            ip("-n", name, "link", "set", interface, "up")
            ip("-n", name, "link", "set", "lo", "up")
            ip("-n", name, "link", "add", "docker0", "type", "bridge")
            ip("-n", name, "addr", "add", "172.31.99.1/24", "dev", "docker0")
            ip("-n", name, "link", "set", "docker0", "up")

    def destroy(self):
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)


@pytest.fixture(scope="module")
def hosts(tmp_path_factory, make_ssh_server):
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces need root and ip(8)")
    hosts = Hosts()
    try:
        hosts.build()
    except subprocess.CalledProcessError as error:
        hosts.destroy()
        pytest.skip(f"no network namespaces here: {error.stderr}")
    prefix = ["ip", "netns", "exec", hosts.names[1]]
    hosts.sshd = make_ssh_server(tmp_path_factory.mktemp("sshd2"), hosts.addresses[1], prefix)
    hosts.sshd.start()
    yield hosts
    hosts.sshd.stop()
    hosts.destroy()


@pytest.fixture
def job(hosts, horovodrun, make_runner, tmp_path):
    """horovodrun inside the first host."""
    runner = make_runner(horovodrun, tmp_path)
    runner.env.update(hosts.sshd.env())

    def call(*args, **kwargs):
        command = ["ip", "netns", "exec", hosts.names[0], horovodrun, *map(str, args)]
        return subprocess.run(
            command, env=runner.env, cwd=tmp_path, capture_output=True, text=True, timeout=60,
            stdin=subprocess.DEVNULL, **kwargs,
        )  # fmt: skip

    call.where = f"{hosts.addresses[0]}:1,{hosts.addresses[1]}:1"
    call.options = hosts.sshd.options
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
