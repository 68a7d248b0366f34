#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""DistributedDataParallel on our backend against gloo, by turns in one run, with checked results.

    OMP_NUM_THREADS=1 horovodrun -np 2 python bench/torch_ddp.py --json 2.json

The models are those of torch_step.py. Each backend has a group of all ranks and a copy of the model
for each bucket size; its best one counts. A turn runs both one after the other in random order, the
ratio is taken within the turn, and medians are shown. Before that, both train the same steps and
the parameters are compared.
"""

import copy
import json
import random
import statistics
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch_step import BUCKETS_MB, MODELS, make_parser, runner, sgd

BACKENDS = ("horovod", "gloo")
CHECK_STEPS = 3


def contestants(make, groups):
    """{(backend, bucket): (step, model)}: all start from the same parameters."""
    base, loss_of = make()
    for p in base.parameters():
        dist.broadcast(p.detach(), 0)
    steps = {}
    for megabytes in BUCKETS_MB:
        for backend, group in groups.items():
            model = DistributedDataParallel(
                copy.deepcopy(base), bucket_cap_mb=megabytes, process_group=group
            )
            steps[backend, megabytes] = (runner(model, loss_of, sgd(model)), model.module)
    return steps


def check(steps):
    """After some steps all copies have the same parameters, whichever backend reduced them."""
    for step, _ in steps.values():
        for _ in range(CHECK_STEPS):
            step()
    models = [model for _, model in steps.values()]
    for model in models[1:]:
        for p, q in zip(models[0].parameters(), model.parameters(), strict=True):
            torch.testing.assert_close(p, q)


def measure(step, repetitions):
    dist.barrier()
    start = time.perf_counter()
    for _ in range(repetitions):
        step()
    return (time.perf_counter() - start) / repetitions


def compare(name, groups, turns, repetitions):
    steps = contestants(MODELS[name], groups)
    check(steps)
    times = {key: [] for key in steps}
    order = random.Random(1)  # the same on all ranks
    for _ in range(turns):
        for key in order.sample(sorted(steps), len(steps)):
            times[key].append(measure(steps[key][0], repetitions))
    medians = {key: statistics.median(values) for key, values in times.items()}
    best = {
        backend: min((key for key in medians if key[0] == backend), key=medians.get)
        for backend in groups
    }
    pairs = zip(times[best["horovod"]], times[best["gloo"]], strict=True)
    return {
        "horovod": medians[best["horovod"]],
        "gloo": medians[best["gloo"]],
        "buckets": {backend: key[1] for backend, key in best.items()},
        "horovod_by_gloo": statistics.median(ours / theirs for ours, theirs in pairs),
        "all": {f"{backend} {size} MB": value for (backend, size), value in medians.items()},
    }


def main():
    arguments = make_parser(__doc__).parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("horovod")
    groups = {backend: dist.new_group(backend=backend) for backend in BACKENDS}
    figures = {}
    for name in arguments.models:
        row = compare(name, groups, arguments.turns, arguments.repetitions)
        figures[name] = row
        if dist.get_rank() == 0:
            print(
                f"{name:12} horovod {row['horovod'] * 1e3:8.2f} ms  gloo {row['gloo'] * 1e3:8.2f} "
                f"ms  horovod/gloo {row['horovod_by_gloo']:.2f}  buckets {row['buckets']}",
                flush=True,
            )
    if dist.get_rank() == 0 and arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump({"ranks": dist.get_world_size(), "models": figures}, file, indent=1)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
