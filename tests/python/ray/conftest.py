# SPDX-License-Identifier: Apache-2.0
"""A real Ray cluster of two raylets with two processors each, in a network namespace of its own.

The second raylet has two GPUs, as far as Ray knows.

Ray listens on the machine's own address; in the namespace there is only one that nobody else sees.
"""

import ctypes
import os
import subprocess

import pytest

CLONE_NEWNET = 0x40000000
CLIENT_PORT = 10001
SET_UP = (
    "ip link set lo up",
    "ip link add v0 type veth peer name v1",
    "ip addr add 10.77.0.1/24 dev v0",
    "ip link set v0 up",
    "ip link set v1 up",
)


def _enter_namespace():
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET) != 0:
        pytest.skip(f"no network namespace: {os.strerror(ctypes.get_errno())}")
    for line in SET_UP:
        subprocess.run(line.split(), check=True)


@pytest.fixture(scope="session")
def cluster():
    for name in [name for name in os.environ if name.startswith("HOROVOD_")]:
        del os.environ[name]
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    os.environ["RAY_AUTH_MODE"] = "disabled"
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"
    os.environ["RAY_CLIENT_SERVER_CHECK_CHANNEL_TIMEOUT_S"] = "10"
    _enter_namespace()
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    small = {"num_cpus": 2, "object_store_memory": 100 << 20, "node_ip_address": "10.77.0.1"}
    head = {"include_dashboard": False, "ray_client_server_port": CLIENT_PORT}
    cluster = Cluster(initialize_head=True, head_node_args={**small, **head})
    cluster.client_port = CLIENT_PORT
    cluster.add_node(**small, num_gpus=2)  # Ray believes it
    ray.init(address=cluster.address, log_to_driver=False, _node_ip_address="10.77.0.1")
    yield cluster
    ray.shutdown()
    cluster.shutdown()
