#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training steps: Horovod against DistributedDataParallel with gloo, interleaved in one run.

    OMP_NUM_THREADS=1 horovodrun -np 2 python bench/torch_step.py [--json FILE] [--plot FILE]

Three models: a small CNN, 25 million parameters in 160 tensors with little compute, and a
transformer. DDP runs with several bucket sizes and its best one counts. "alone" is the same step
without communication on all ranks side by side: the bound that nobody beats.
"""

import argparse
import copy
import json
import statistics
import tempfile
import time

import horovod.torch as hvd
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

BUCKETS_MB = (1, 5, 25, 100)


class Many(nn.Module):
    """25 million parameters in 160 tensors, each used once in an elementwise product."""

    def __init__(self):
        super().__init__()
        self.parts = nn.ParameterList(nn.Parameter(torch.randn(156_250)) for _ in range(160))

    def forward(self, x):
        return sum((p * x).sum() for p in self.parts)


def make_cnn():
    model = nn.Sequential(
        *(nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(64 * 64, 256), nn.ReLU(), nn.Linear(256, 10)),
    )
    x, y = torch.randn(16, 3, 32, 32), torch.randint(0, 10, (16,))
    return model, lambda m: F.cross_entropy(m(x), y)


def make_many():
    x = torch.ones(1)
    return Many(), lambda m: m(x)


def make_transformer():
    layer = nn.TransformerEncoderLayer(256, 4, 1024, dropout=0.0, batch_first=True)
    model = nn.Sequential(nn.TransformerEncoder(layer, 6, enable_nested_tensor=False))
    x = torch.randn(4, 64, 256)
    return model, lambda m: m(x).square().mean()


MODELS = {"cnn": make_cnn, "many": make_many, "transformer": make_transformer}


def runner(model, loss_of, optimizer):
    def step():
        optimizer.zero_grad()
        loss_of(model).backward()
        optimizer.step()

    return step


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=1e-6)


def contestants(make):
    base, loss_of = make()
    alone, ours = copy.deepcopy(base), copy.deepcopy(base)
    steps = {
        "alone": runner(alone, loss_of, sgd(alone)),
        "horovod": runner(
            ours, loss_of, hvd.DistributedOptimizer(sgd(ours), ours.named_parameters())
        ),
    }
    for megabytes in BUCKETS_MB:
        model = DistributedDataParallel(copy.deepcopy(base), bucket_cap_mb=megabytes)
        steps[f"ddp {megabytes} MB"] = runner(model, loss_of, sgd(model))
    return steps


def measure(step, repetitions):
    dist.barrier()
    start = time.perf_counter()
    for _ in range(repetitions):
        step()
    return (time.perf_counter() - start) / repetitions


def compare(name, turns, repetitions):
    times = {}
    for label, step in (steps := contestants(MODELS[name])).items():
        measure(step, 3)
        times[label] = []
    for _ in range(turns):
        for label, step in steps.items():
            times[label].append(measure(step, repetitions))
    medians = {label: statistics.median(values) for label, values in times.items()}
    best = min((label for label in medians if label.startswith("ddp")), key=medians.get)
    return {
        "alone": medians["alone"],
        "horovod": medians["horovod"],
        "ddp": medians[best],
        "ddp_bucket": best,
        "all": medians,
    }


def plot(figures, path):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    fig, axes = plt.subplots(1, len(figures), figsize=(4 * len(figures), 3.2))
    for axis, (name, row) in zip(axes, figures.items(), strict=True):
        labels = ["alone", "horovod", "ddp"]
        axis.bar(labels, [row[label] * 1e3 for label in labels], color=["#999", "#27c", "#c72"])
        axis.set_title(name)
        axis.set_ylabel("ms per step")
    fig.tight_layout()
    fig.savefig(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--json", help="write the figures to this file")
    parser.add_argument("--plot", help="draw the figures into this file (needs matplotlib)")
    arguments = parser.parse_args()
    hvd.init()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    path = hvd.broadcast_object(tempfile.mktemp(prefix="gloo-"), 0)
    dist.init_process_group(
        "gloo", init_method=f"file://{path}", rank=hvd.rank(), world_size=hvd.size()
    )
    figures = {}
    for name in arguments.models:
        figures[name] = row = compare(name, arguments.turns, arguments.repetitions)
        if hvd.rank() == 0:
            share = 1 - row["alone"] / row["horovod"]
            print(
                f"{name:12} alone {row['alone'] * 1e3:8.2f} ms  horovod {row['horovod'] * 1e3:8.2f}"
                f"  ddp {row['ddp'] * 1e3:8.2f} ({row['ddp_bucket']})  horovod/ddp "
                f"{row['horovod'] / row['ddp']:.2f}  communication {100 * share:.0f} %",
                flush=True,
            )
    if hvd.rank() == 0 and arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump({"ranks": hvd.size(), "models": figures}, file, indent=1)
    if hvd.rank() == 0 and arguments.plot:
        plot(figures, arguments.plot)
    dist.destroy_process_group()
    hvd.shutdown()


if __name__ == "__main__":
    main()
