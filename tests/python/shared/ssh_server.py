# SPDX-License-Identifier: Apache-2.0
"""A private sshd, here or in a network namespace, with keys of its own."""

import os
import shutil
import socket
import subprocess
import time


def wait_for(condition, seconds=60, what="condition"):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"no {what} after {seconds} s"
        time.sleep(0.01)


class SshServer:
    host = "127.0.0.2"

    def __init__(self, folder, host=None, prefix=()):
        self.folder = folder
        self.host = host or self.host
        self.prefix = list(prefix)
        self.port = self.free_port() if not prefix else 20000 + os.getpid() % 20000
        self.identity = folder / "id"
        for name in ("host_key", "id"):
            subprocess.run(
                ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)],
                check=True,
            )
        shutil.copy(folder / "id.pub", folder / "authorized")
        (folder / "home").mkdir(mode=0o700)
        (folder / "config").write_text(
            f"HostKey {folder}/host_key\n"
            f"AuthorizedKeysFile {folder}/authorized\n"
            "UsePAM no\nStrictModes no\nPasswordAuthentication no\n"
            "PermitRootLogin prohibit-password\nMaxStartups 200\n"
            f"PidFile {folder}/pid\n"
        )

    def free_port(self):
        with socket.socket() as probe:
            probe.bind((self.host, 0))
            return probe.getsockname()[1]

    def start(self):
        script = (
            "mount -t tmpfs t /run && mkdir -m755 /run/sshd && "
            f"exec /usr/sbin/sshd -D -f {self.folder}/config -p {self.port} "
            f"-o ListenAddress={self.host}"
        )
        self.process = subprocess.Popen(
            [*self.prefix, "unshare", "-m", "sh", "-c", script],
            stdout=subprocess.DEVNULL,
            stderr=(self.folder / "log").open("w"),
        )
        wait_for((self.folder / "pid").exists, what="sshd")

    def stop(self):
        self.process.terminate()
        self.process.wait(10)

    @property
    def options(self):
        # ssh takes the home folder from the user database, so the known hosts need an own wrapper.
        return ["-p", self.port, "-i", self.identity]

    def env(self):
        """A PATH whose ssh keeps its known hosts in this folder, away from the user's."""
        folder = self.folder / "bin"
        folder.mkdir(exist_ok=True)
        wrapper = folder / "ssh"
        wrapper.write_text(
            f'#!/bin/sh\nexec /usr/bin/ssh -o UserKnownHostsFile={self.folder}/known_hosts "$@"\n'
        )
        wrapper.chmod(0o755)
        return {"PATH": f"{folder}:{os.environ['PATH']}"}
