# SPDX-License-Identifier: Apache-2.0
"""Two "machines" on this one: network namespaces joined by a veth pair. They share no memory and
no loopback with each other; a job has half of its ranks in each.

Other tests derive from Pair what they add to the two machines, and build it with built().

Skips, with the reason, where namespaces are not allowed.
"""

import contextlib
import os
import secrets
import shutil
import subprocess
import sys

import pytest
from launching import clean_environment

PORT = 29400


def ip(*words):
    subprocess.run(["ip", *map(str, words)], check=True, capture_output=True, text=True)


class Pair:
    """Two namespaces NAMEa and NAMEb at .1 and .2 of a network, joined by a veth pair."""

    def __init__(self, name, net, interfaces=("veth0", "veth0")):
        number = os.getpid() % 200 + 20
        self.names = [f"{name}{os.getpid()}a", f"{name}{os.getpid()}b"]
        self.net = f"{net}.{number}.0/24"
        self.addresses = [f"{net}.{number}.1", f"{net}.{number}.2"]
        self.interfaces = interfaces

    def build(self):
        for name in self.names:
            ip("netns", "add", name)
        (here, there), (first, second) = self.names, self.interfaces
        peer = ["type", "veth", "peer", "name", second, "netns", there]
        ip("link", "add", first, "netns", here, *peer)
        for name, address, link in zip(self.names, self.addresses, self.interfaces, strict=True):
            ip("-n", name, "link", "set", "lo", "up")
            ip("-n", name, "addr", "add", f"{address}/24", "dev", link)
            ip("-n", name, "link", "set", link, "up")

    def destroy(self):
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


@contextlib.contextmanager
def built(pair, *programs):
    """The pair, built; skips the test where namespaces, or the programs it needs, are missing."""
    programs = ["ip", *programs]
    if os.geteuid() != 0 or not all(map(shutil.which, programs)):
        pytest.skip(f"network namespaces need root and {', '.join(programs)}")
    try:
        pair.build()
    except subprocess.CalledProcessError as error:
        pair.destroy()
        pytest.skip(f"no network namespaces here: {error.stderr.strip()}")
    try:
        yield pair
    finally:
        pair.destroy()


class Namespaces(Pair):
    """The two machines of a job whose launcher is not ours."""

    def __init__(self):
        super().__init__("hvdn", "10.79")

    def cut(self, is_cut=True):
        """Take the line down, or put it up again."""
        ip("-n", self.names[0], "link", "set", "veth0", "down" if is_cut else "up")

    def start(self, command, ranks, env=None):
        """The processes of a job, as a launcher that is not ours starts them."""
        key, each = secrets.token_hex(32), ranks // 2
        processes = []
        for rank in range(ranks):
            place = {
                "RANK": rank,
                "WORLD_SIZE": ranks,
                "LOCAL_RANK": rank % each,
                "LOCAL_WORLD_SIZE": each,
                "HOROVOD_KEY": key,
                "MASTER_ADDR": self.addresses[0],
                "MASTER_PORT": PORT,
            }
            place = {name: str(value) for name, value in place.items()}
            words = ["ip", "netns", "exec", self.names[rank // each], *map(str, command)]
            processes.append(
                subprocess.Popen(
                    words,
                    env=clean_environment({**place, **(env or {})}),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                )
            )
        return processes

    def run(self, command, ranks=2, env=None, deadline_s=300):
        """The outputs of all ranks, which must succeed."""
        processes = self.start(command, ranks, env)
        try:
            outputs = [process.communicate(timeout=deadline_s)[0] for process in processes]
        finally:
            for process in processes:
                with contextlib.suppress(OSError):
                    process.kill()
        for process, output in zip(processes, outputs, strict=True):
            assert process.returncode == 0, output[-6000:]
        return outputs

    def run_module(self, path, which):
        """Run those tests of a module whose names match, a rank in each; all must pass."""
        options = ["-q", "-x", "--no-header", "-p", "no:cacheprovider", "-k", which]
        outputs = self.run([sys.executable, "-m", "pytest", *options, path], 2)
        assert all(" passed" in output for output in outputs), outputs


@pytest.fixture(scope="module")
def namespaces():
    """Two namespaces that can reach each other."""
    with built(Namespaces()) as made:
        yield made
