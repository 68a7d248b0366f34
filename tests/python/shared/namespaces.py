# SPDX-License-Identifier: Apache-2.0
"""Two "machines" on this one: network namespaces joined by a veth pair. They share no memory and
no loopback with each other; a job has half of its ranks in each.

Skips, with the reason, where namespaces are not allowed.
"""

import contextlib
import os
import secrets
import shutil
import subprocess

import pytest
from launching import clean_environment

PORT = 29400


def _ip(*words):
    subprocess.run(["ip", *map(str, words)], check=True, capture_output=True, text=True)


class Namespaces:
    """The two namespaces and their addresses."""

    def __init__(self):
        number = os.getpid() % 200 + 20
        self.names = [f"hvdn{os.getpid()}a", f"hvdn{os.getpid()}b"]
        self.addresses = [f"10.79.{number}.1", f"10.79.{number}.2"]

    def build(self):
        for name in self.names:
            _ip("netns", "add", name)
        link = ["netns", self.names[0], "type", "veth", "peer", "name", "veth0"]
        _ip("link", "add", "veth0", *link, "netns", self.names[1])
        for name, address in zip(self.names, self.addresses, strict=True):
            _ip("-n", name, "link", "set", "lo", "up")
            _ip("-n", name, "addr", "add", f"{address}/24", "dev", "veth0")
            _ip("-n", name, "link", "set", "veth0", "up")

    def destroy(self):
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)

    def cut(self, is_cut=True):
        """Take the line down, or put it up again."""
        _ip("-n", self.names[0], "link", "set", "veth0", "down" if is_cut else "up")

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


@pytest.fixture(scope="module")
def namespaces():
    """Two namespaces that can reach each other."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces need root and ip(8)")
    made = Namespaces()
    try:
        made.build()
    except subprocess.CalledProcessError as error:
        made.destroy()
        pytest.skip(f"no network namespaces here: {error.stderr.strip()}")
    yield made
    made.destroy()
