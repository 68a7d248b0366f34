# SPDX-License-Identifier: Apache-2.0
"""Two "hosts" under mpirun: network namespaces with names of their own, reached by an agent that
takes ssh's place. Ranks of one share memory; between the two all goes over MPI."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from namespaces import Pair, built

RANKS = Path(__file__).resolve().with_name("ranks_control.py")
AGENT = """#!/bin/sh
while :; do case $1 in -*) shift ;; *) break ;; esac; done
host=$1
shift
case $host in
{cases}
*) echo "agent: who is $host?" >&2; exit 1 ;;
esac
exec nsenter --net=/run/netns/$name unshare --uts sh -c "hostname $name; $*"
"""

pytestmark = pytest.mark.timeout(120)


class Hosts(Pair):
    def __init__(self, folder):
        super().__init__("hvdm", "10.79", ("east0", "west7"))
        self.agent = folder / "agent"

    def build(self):
        super().build()
        both = zip(self.names, self.addresses, strict=True)
        cases = "".join(f"{address}) name={name} ;;\n" for name, address in both)
        self.agent.write_text(AGENT.format(cases=cases))
        self.agent.chmod(0o755)

    def options(self, mpi, slots):
        pairs = list(zip(self.addresses, slots, strict=True))
        if not mpi.is_open:
            path = self.agent.with_name(f"hosts-{'-'.join(map(str, slots))}")
            path.write_text("".join(f"{address}:{count}\n" for address, count in pairs))
            return ["-f", path, "-launcher", "ssh", "-launcher-exec", self.agent]
        hosts = ",".join(f"{address}:{count}" for address, count in pairs)
        common = ["--allow-run-as-root", "-H", hosts, "--mca", "btl_tcp_if_include", self.net]
        if mpi.name == "openmpi5":
            return [*common, "--prtemca", "plm_ssh_agent", self.agent]
        return [*common, "--mca", "oob_tcp_if_include", self.net, "--mca", "plm_rsh_agent",
                self.agent]  # fmt: skip


@pytest.fixture(scope="module")
def hosts(tmp_path_factory):
    with built(Hosts(tmp_path_factory.mktemp("hosts")), "nsenter") as hosts:
        yield hosts


@pytest.fixture
def mpirun(hosts, mpi):
    """Runs a case with so many ranks on each host."""

    def start(slots, *case, env=None, timeout=60):
        options = hosts.options(mpi, slots)
        command = [mpi.mpirun, "-np", sum(slots), *options, sys.executable, RANKS, *case]
        first = hosts.names[0]
        inside = ["nsenter", f"--net=/run/netns/{first}", "unshare", "--uts", "sh", "-c",
                  'hostname "$0"; exec "$@"', first]  # fmt: skip
        return subprocess.run(
            [*inside, *map(str, command)],
            env={**os.environ, **(env or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    return start


def places(result):
    told = result.stdout + result.stderr
    assert result.returncode == 0, told
    found = {}
    for line in re.findall(r"^place (.*)$", result.stdout, re.MULTILINE):
        rank, *numbers = line.split()
        found[int(rank)] = (" ".join(numbers[:5]), *numbers[5:])
    return found


def test_two_and_two(mpirun):
    """local rank, local size, cross rank, cross size, homogeneous; shm within, MPI between."""
    assert places(mpirun((2, 2), "places")) == {
        0: ("0 2 0 2 1", "shm", "net"),
        1: ("1 2 0 2 1", "shm", "net"),
        2: ("0 2 1 2 1", "shm", "net"),
        3: ("1 2 1 2 1", "shm", "net"),
    }


def test_two_and_one(mpirun):
    """Of local rank 1 there is one host only."""
    found = places(mpirun((2, 1), "places"))
    assert [found[rank][0] for rank in range(3)] == ["0 2 0 2 0", "1 2 0 1 0", "0 1 1 2 0"]


def test_collectives_of_mpi(mpirun):
    found = places(mpirun((2, 2), "places", env={"HOROVOD_CPU_OPERATIONS": "mpi"}))
    assert sorted(found) == [0, 1, 2, 3]


def test_killed_rank_on_the_other_host(mpirun):
    result = mpirun((1, 1), "killed")
    assert result.returncode != 0
    assert "no error" not in result.stdout
    told = result.stdout + result.stderr
    # Open MPI 5 may end the survivor for its closed socket before it hears of the signal.
    assert re.search(r"signal:? 9|SIGKILL|Killed|exit code: 9|Socket closed", told, re.I), told
