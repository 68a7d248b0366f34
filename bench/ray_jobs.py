#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long jobs on Ray take to start, and to go on when Ray replaces a node.

    bench/ray_jobs.py [--starts 7] [--losses 5]

Starts a Ray cluster of two nodes on this machine, as Ray's own tests do, and prints

    actors    a placement group and two empty actors, until both have answered
    start     RayExecutor.start() with two workers; "beyond" is the difference to the actors
    run       the first run(): hvd.init() and an allreduce on both ranks
    resume    an elastic job of two nodes with a rank each, of which it needs both. One raylet is
              killed, and a new node is added when the step of the survivor has failed: from the
              moment at which Ray lists the new node to the first step of both ranks

Use a Python in which Horovod and Ray are installed.
"""

import argparse
import os
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

import cloudpickle  # noqa: E402
import ray  # noqa: E402
from horovod.ray import RayExecutor  # noqa: E402
from ray.cluster_utils import Cluster  # noqa: E402
from ray.util.placement_group import placement_group, remove_placement_group  # noqa: E402
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy  # noqa: E402

cloudpickle.register_pickle_by_value(sys.modules[__name__])

NODE = {"num_cpus": 1, "object_store_memory": 100 << 20}
LIMIT_S = 120
PAUSE_S = 3  # in which Ray replaces the processes that an attempt has used up


def show(name, seconds):
    low, middle, high = min(seconds), statistics.median(seconds), max(seconds)
    print(f"{name:10}{middle:8.2f} s  ({low:.2f} to {high:.2f}, {len(seconds)} times)", flush=True)


# ---- starting ----


class Empty:
    def answer(self):
        return 1


def start_actors():
    began = time.monotonic()
    group = placement_group([{"CPU": 1}] * 2, strategy="PACK")
    ray.get(group.ready())
    placed = {"scheduling_strategy": PlacementGroupSchedulingStrategy(group)}
    actors = [ray.remote(Empty).options(num_cpus=1, **placed).remote() for _ in range(2)]
    ray.get([actor.answer.remote() for actor in actors])
    took = time.monotonic() - began
    for actor in actors:
        ray.kill(actor)
    remove_placement_group(group)
    return took


def add_up():
    import horovod.numpy as hvd
    import numpy as np

    hvd.init()
    return float(hvd.allreduce(np.ones(1), op=hvd.Sum)[0])


def start_executor():
    executor = RayExecutor(RayExecutor.create_settings(), num_workers=2)
    began = time.monotonic()
    executor.start()
    started = time.monotonic()
    if executor.run(add_up) != [2.0, 2.0]:
        sys.exit("wrong sum")
    ended = time.monotonic()
    executor.shutdown()
    return started - began, ended - started


def measure_starts(times):
    actors, starts, runs = [], [], []
    for _ in range(times):
        time.sleep(PAUSE_S)
        actors.append(start_actors())
        time.sleep(PAUSE_S)
        started, ran = start_executor()
        starts.append(started)
        runs.append(ran)
    show("actors", actors)
    show("start", starts)
    show("beyond", [start - actor for start, actor in zip(starts, actors, strict=True)])
    show("run", runs)


# ---- a node that is replaced ----


def work(folder):
    import horovod.numpy as hvd
    import numpy as np
    from horovod.common.elastic import ObjectState, make_run

    hvd.init()
    state = ObjectState(hvd.broadcast_object, hvd.rank, step=0)

    def reset():
        (folder / "failed").write_text("")
        hvd.shutdown()
        hvd.init()

    @make_run(reset)()
    def train(state):
        is_over = False
        while not is_over:
            finish = np.array([float((folder / "finish").exists())])
            is_over = bool(hvd.allreduce(finish, name="gradients", op=hvd.Max)[0])
            state.step += 1
            if hvd.rank() == 0:
                (folder / "new").write_text(f"{time.monotonic()} {hvd.size()}")
                (folder / "new").replace(folder / "step")
            state.commit()
            time.sleep(0.01)

    train(state)


def wait_until(condition, what):
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        if time.monotonic() > deadline:
            sys.exit(f"{what} did not happen in {LIMIT_S} s")
        time.sleep(0.005)


def step_after(folder, moment):
    """When a step was made after that moment; 0: none was."""
    try:
        text = (folder / "step").read_text()
    except FileNotFoundError:
        return 0
    made, size = text.split()
    return float(made) if int(size) == 2 and float(made) > moment else 0


def lose_node(cluster, nodes, folder):
    """Seconds from the moment that Ray lists a new node to the next step."""
    before = {node["NodeID"] for node in ray.nodes()}
    (folder / "failed").unlink(missing_ok=True)
    cluster.remove_node(nodes.pop(), allow_graceful=False)
    wait_until((folder / "failed").exists, "an error of the survivor")
    nodes.append(cluster.add_node(**NODE, wait=False))
    wait_until(
        lambda: any(n["Alive"] and n["NodeID"] not in before for n in ray.nodes()), "a new node"
    )
    offered = time.monotonic()
    wait_until(lambda: step_after(folder, offered), "a step on two nodes")
    return step_after(folder, offered) - offered


def measure_losses(cluster, nodes, times):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        executor = RayExecutor(RayExecutor.create_settings(), min_workers=2, max_workers=2)
        executor.start()
        job = threading.Thread(target=executor.run, args=(work, [folder]), daemon=True)
        job.start()
        wait_until(lambda: step_after(folder, 0), "the first step")
        took = []
        for _ in range(times):
            time.sleep(PAUSE_S)
            took.append(lose_node(cluster, nodes, folder))
        (folder / "finish").write_text("")
        job.join(LIMIT_S)
        if job.is_alive():
            sys.exit("the job has not ended")
    show("resume", took)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--starts", type=int, default=7)
    parser.add_argument("--losses", type=int, default=5)
    arguments = parser.parse_args()
    small = {**NODE, "num_cpus": 0, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=small)
    nodes = [cluster.add_node(**NODE) for _ in range(2)]
    ray.init(address=cluster.address, log_to_driver=False)
    try:
        if arguments.starts:
            measure_starts(arguments.starts)
        if arguments.losses:
            measure_losses(cluster, nodes, arguments.losses)
    finally:
        ray.shutdown()
        cluster.shutdown()


if __name__ == "__main__":
    main()
