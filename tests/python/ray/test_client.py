# SPDX-License-Identifier: Apache-2.0
"""RayExecutor in a program that is not part of the cluster: Ray Client."""

import subprocess
import sys

PROGRAM = """
import os, sys
import ray
from horovod.ray import RayExecutor, ray_logger

def work(scale):
    import horovod.numpy as hvd
    import numpy as np

    hvd.init()
    total = float(hvd.allreduce(np.full(1, hvd.rank() + 1.0), op=hvd.Sum)[0]) * scale
    ray_logger.log({"total": total})
    rank = hvd.rank()
    hvd.shutdown()
    return rank, total, os.environ["OF_THE_JOB"]

def connect(tries):
    # Now and then the server of a client dies at once: it was forked while gRPC was at work.
    try:
        ray.init(sys.argv[1])
    except ConnectionError:
        if tries == 1:
            raise
        connect(tries - 1)

connect(8)
seen = []
executor = RayExecutor(RayExecutor.create_settings(), num_workers=2)
executor.start(dict, executable_kwargs={"a": 1}, extra_env_vars={"OF_THE_JOB": "x"})
print(executor.run(work, [10], callbacks=[seen.append]))
print(ray.get(executor.run_remote(work, [1])))
print(executor.execute(lambda made: made["a"]), executor.execute_single(len))
try:
    executor.run(lambda: 1 / 0)
except ZeroDivisionError:
    print("ZeroDivisionError")
executor.shutdown()
print(seen)
elastic = RayExecutor(RayExecutor.create_settings(), min_workers=2, max_workers=2)
elastic.start(dict, executable_kwargs={"a": 1}, extra_env_vars={"OF_THE_JOB": "y"})
print(elastic.execute(lambda made: work(made["a"]), callbacks=[seen.append]), len(seen))
elastic.shutdown()
"""


def test_a_program_outside_the_cluster(cluster):
    address = f"ray://{cluster.head_node.node_ip_address}:{cluster.client_port}"
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, address], capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines() == [
        "[(0, 30.0, 'x'), (1, 30.0, 'x')]",
        "[(0, 3.0, 'x'), (1, 3.0, 'x')]",
        "[1, 1] 1",
        "ZeroDivisionError",
        "[{'total': 30.0}]",
        "[(0, 3.0, 'y'), (1, 3.0, 'y')] 2",
    ]
