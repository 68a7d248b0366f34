# SPDX-License-Identifier: Apache-2.0
"""What the manifests say starts ranks: their variables, with processes in place of pods."""

import os
import re
import secrets
import socket
import subprocess
import sys
from pathlib import Path

import pytest

KUBERNETES = Path(__file__).resolve().parents[3] / "deploy" / "kubernetes"
PROGRAM = """
import horovod.numpy as hvd
hvd.init()
print(hvd.rank(), hvd.size(), hvd.local_size(), float(hvd.allreduce(1.0 * hvd.rank())))
"""


def variables(name, index, size, port):
    """The environment of a pod: literal values, and what Kubernetes fills in."""
    text = (KUBERNETES / name).read_text(encoding="utf-8")
    env = dict(re.findall(r"- \{name: (\w+), value: \"?([^\"}]+)\"?\}", text))
    assert "- name: HOROVOD_KEY\n" in text and "- name: RANK\n" in text
    assert env["HOROVOD_RENDEZVOUS"].endswith(":23456") and env["WORLD_SIZE"] == "4"
    address = f"127.0.0.1:{port}"
    env.update({"RANK": str(index), "WORLD_SIZE": str(size), "HOROVOD_RENDEZVOUS": address})
    return env


@pytest.mark.parametrize("name", ["indexed_job.yaml", "jobset.yaml"])
def test_variables_of_the_pods_start_ranks(name):
    pytest.importorskip("numpy")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    key = secrets.token_hex(32)
    clean = {k: v for k, v in os.environ.items() if not k.startswith("HOROVOD_")}
    pods = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM],
            env={**clean, **variables(name, index, 2, port), "HOROVOD_KEY": key},
            stdout=subprocess.PIPE,
            text=True,
        )
        for index in range(2)
    ]
    told = [pod.communicate(timeout=120)[0].strip() for pod in pods]
    assert told == ["0 2 1 0.5", "1 2 1 0.5"]


def test_discovery_lists_each_address_once():
    script = KUBERNETES / "discover_hosts.sh"
    env = dict(os.environ, SERVICE="localhost", SLOTS="3")
    told = subprocess.run([script], env=env, capture_output=True, text=True, check=True).stdout
    assert told == "127.0.0.1:3\n"
