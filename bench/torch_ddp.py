#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""torch.distributed on our backend against gloo, by turns in one run, with checked results.

    OMP_NUM_THREADS=1 horovodrun -np 2 python bench/torch_ddp.py --json 2.json
    python bench/torch_ddp.py --between --json FOLDER

Steps of DistributedDataParallel with the models of torch_step.py, steps of FSDP2, and all_reduce.
Each backend has a group of all ranks. With DDP it has a copy of the model for each bucket size; its
best one counts. A turn runs all copies one after the other in random order, the ratio is taken
within the turn, and medians are shown. Before that, both backends train the same steps and the
parameters are compared; sums are checked in every turn.

Two bounds are timed in the same turns: "alone" is the step without DDP on all ranks side by side,
"silent" the step with DDP, which copies its gradients to buckets and back, but sends nothing.

--between runs one rank in each of two network namespaces (bench/between.sh); it needs root, ip and
tc.
"""

import argparse
import copy
import json
import os
import random
import statistics
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

BACKENDS = ("horovod", "gloo")
BOUNDS = ("alone", "silent")
CHECK_STEPS = 3
FSDP_BLOCK = 10  # layers that FSDP2 gathers together, as the blocks of a transformer
OPS = {"8B": (8, 400), "64MiB": (64 << 20, 3)}  # bytes, repetitions in a turn
CASES = ("cnn", "layers", "transformer", "many", "fsdp2", *OPS)
DEFAULT = [case for case in CASES if case != "many"]


class Contest:
    """What to time, by (backend, variant); `check` is called after every measurement."""

    def __init__(self, runs, repetitions, check=lambda key: None):
        self.runs, self.repetitions, self.check = runs, repetitions, check


# ---- training steps ----


def assert_same(models):
    """All copies have the same parameters, whichever backend reduced them."""
    for model in models[1:]:
        for p, q in zip(models[0].parameters(), model.parameters(), strict=True):
            if isinstance(p, dist.tensor.DTensor):
                p, q = p.to_local(), q.to_local()
            torch.testing.assert_close(p, q)


def train_and_check(steps, models):
    for step in steps.values():
        for _ in range(CHECK_STEPS):
            step()
    assert_same(models)


def same_start(model):
    for p in model.parameters():
        dist.broadcast(p.detach(), 0)


def make_ddp(name, groups, repetitions):
    from torch_step import BUCKETS_MB, MODELS, runner, sgd

    base, loss_of = MODELS[name]()
    same_start(base)
    steps, models = {}, []
    for megabytes in BUCKETS_MB:
        for backend, group in groups.items():
            model = DistributedDataParallel(
                copy.deepcopy(base), bucket_cap_mb=megabytes, process_group=group
            )
            steps[backend, f"{megabytes} MB"] = runner(model, loss_of, sgd(model))
            models.append(model.module)
    train_and_check(steps, models)
    alone = copy.deepcopy(base)
    steps["alone", ""] = runner(alone, loss_of, sgd(alone))
    silent = DistributedDataParallel(copy.deepcopy(base), process_group=groups["horovod"])
    silent.register_comm_hook(None, send_nothing)
    steps["silent", ""] = runner(silent, loss_of, sgd(silent))
    return Contest(steps, repetitions)


def send_nothing(state, bucket):
    future = torch.futures.Future()
    future.set_result(bucket.buffer())
    return future


def make_fsdp2(groups, repetitions):
    from torch_step import MODELS, runner, sgd

    base, loss_of = MODELS["layers"]()
    same_start(base)
    steps, models = {}, []
    for backend, group in groups.items():
        mesh = DeviceMesh.from_group(group, "cpu")
        layers = list(copy.deepcopy(base))
        blocks = [layers[i : i + FSDP_BLOCK] for i in range(0, len(layers), FSDP_BLOCK)]
        model = nn.Sequential(*(nn.Sequential(*block) for block in blocks))
        for block in model:
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
        steps[backend, f"{len(model)} blocks"] = runner(model, loss_of, sgd(model))
        models.append(model)
    train_and_check(steps, models)
    return Contest(steps, repetitions)


# ---- all_reduce ----


def make_all_reduce(name, groups):
    count, repetitions = OPS[name]
    tensor = torch.zeros(count // 4)  # zeros stay zeros, however often they are added up
    wanted = float(sum(range(1, dist.get_world_size() + 1)))

    def check(key):
        tensor.fill_(dist.get_rank() + 1.0)
        dist.all_reduce(tensor, group=groups[key[0]])
        if not torch.all(tensor == wanted):
            raise SystemExit(f"torch_ddp: wrong sum of {key[0]}: {tensor[0]} instead of {wanted}")
        tensor.zero_()

    runs = {
        (backend, name): lambda group=group: dist.all_reduce(tensor, group=group)
        for backend, group in groups.items()
    }
    for key in runs:
        check(key)
    return Contest(runs, repetitions, check)


# ---- turns ----


def measure(run, repetitions):
    dist.barrier()
    start = time.perf_counter()
    for _ in range(repetitions):
        run()
    return (time.perf_counter() - start) / repetitions


def compare(contest, turns):
    times = {key: [] for key in contest.runs}
    order = random.Random(1)  # the same on all ranks
    for turn in range(turns + 1):
        for key in order.sample(sorted(times), len(times)):
            seconds = measure(contest.runs[key], contest.repetitions)
            contest.check(key)
            if turn > 0:  # the first turn warms up
                times[key].append(seconds)
    medians = {key: statistics.median(values) for key, values in times.items()}
    best = {
        backend: min((key for key in medians if key[0] == backend), key=medians.get)
        for backend in BACKENDS
    }
    pairs = list(zip(times[best["horovod"]], times[best["gloo"]], strict=True))
    return {
        "horovod": medians[best["horovod"]],
        "gloo": medians[best["gloo"]],
        "best": {backend: key[1] for backend, key in best.items()},
        "horovod_by_gloo": statistics.median(ours / theirs for ours, theirs in pairs),
        "gloo_by_horovod": statistics.median(theirs / ours for ours, theirs in pairs),
        "bounds": {key[0]: value for key, value in medians.items() if key[0] in BOUNDS},
        "all": {" ".join(key).strip(): value for key, value in medians.items()},
    }


def make(case, groups, repetitions):
    if case in OPS:
        return make_all_reduce(case, groups)
    if case == "fsdp2":
        return make_fsdp2(groups, repetitions)
    return make_ddp(case, groups, repetitions)


def line_of(case, row):
    kind = "all_reduce" if case in OPS else "step"
    bounds = "".join(f"  {name} {seconds * 1e3:.3f} ms" for name, seconds in row["bounds"].items())
    return (
        f"{kind} {case:12} horovod {row['horovod'] * 1e3:9.3f} ms  gloo {row['gloo'] * 1e3:9.3f} ms"
        f"  horovod/gloo {row['horovod_by_gloo']:.3f}  gloo/horovod {row['gloo_by_horovod']:.2f}"
        f"  ({row['best']['horovod']}; {row['best']['gloo']}){bounds}"
    )


def run_between(arguments):
    """Become bench/between.sh, which starts this program again, in two namespaces."""
    os.environ.update(
        PROGRAMS="ddp",
        RATES=arguments.rates,
        RANKS=str(arguments.ranks),
        TURNS=str(arguments.turns),
        DDP=f"--repetitions {arguments.repetitions} --cases {' '.join(arguments.cases)}",
    )
    script = Path(__file__).resolve().parent / "between.sh"
    words = [str(script), sys.executable, *([arguments.json] if arguments.json else [])]
    os.execv(words[0], words)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--cases", nargs="+", default=DEFAULT, choices=CASES, metavar="CASE")
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--repetitions", type=int, default=5, help="steps in a turn")
    parser.add_argument("--json", help="write the figures to this file (--between: to this folder)")
    parser.add_argument("--between", action="store_true", help="between two network namespaces")
    parser.add_argument("--ranks", type=int, default=1, help="with --between: ranks in each")
    parser.add_argument("--rates", default="0", help='with --between: "0 1000" Mbit/s, 0: no limit')
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    if arguments.between:
        run_between(arguments)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("horovod")
    groups = {backend: dist.new_group(backend=backend) for backend in BACKENDS}
    figures = {}
    for case in arguments.cases:
        row = compare(make(case, groups, arguments.repetitions), arguments.turns)
        figures[case] = row
        if dist.get_rank() == 0:
            print(line_of(case, row), flush=True)
    if dist.get_rank() == 0 and arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump({"ranks": dist.get_world_size(), "cases": figures}, file, indent=1)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
