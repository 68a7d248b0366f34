#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training steps: Horovod against DistributedDataParallel with gloo, interleaved in one run.

    OMP_NUM_THREADS=1 horovodrun -np 2 python bench/torch_step.py --json 2.json
    OMP_NUM_THREADS=1 horovodrun -np 4 python bench/torch_step.py --json 4.json \\
        --plot step.svg --also 2.json

Four models: a small CNN, 25 million parameters in 160 tensors with little compute, 160 linear
layers of 400 x 400, and a transformer. DDP runs with several bucket sizes and its best one counts.
"alone" is the same step without communication on all ranks side by side: the bound that nobody
beats. Each turn runs all of them one after the other in random order; the ratio of a turn is taken
within it, and medians are shown. Also shown: the processor seconds that all ranks spend on
communication in a step (what a step takes beyond "alone"), and, with --interface, the bytes that
rank 0's machine sends in a step. With --compression, Horovod runs with those, too. After the turns
the parameters of all ranks must be equal.
bench/between.sh runs this between two network namespaces.
"""

import argparse
import copy
import json
import random
import resource
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


def own_data(*shape):
    """Differs between ranks, so that equal parameters mean something."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1 + hvd.rank()))


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
    x, y = own_data(16, 3, 32, 32), torch.randint(0, 10, (16,))
    return model, lambda m: F.cross_entropy(m(x), y)


def make_many():
    x = own_data(1)
    return Many(), lambda m: m(x)


def make_layers():
    model = nn.Sequential(*(nn.Linear(400, 400) for _ in range(160)))
    x = own_data(32, 400)
    return model, lambda m: m(x).square().mean()


def make_transformer():
    layer = nn.TransformerEncoderLayer(256, 4, 1024, dropout=0.0, batch_first=True)
    model = nn.Sequential(nn.TransformerEncoder(layer, 6, enable_nested_tensor=False))
    x = own_data(4, 64, 256)
    return model, lambda m: m(x).square().mean()


MODELS = {
    "cnn": make_cnn,
    "many": make_many,
    "layers": make_layers,
    "transformer": make_transformer,
}


def runner(model, loss_of, optimizer):
    def step():
        optimizer.zero_grad()
        loss_of(model).backward()
        optimizer.step()

    return step


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=1e-6)


def contestants(make, compressions):
    """{label: (step, model)}; "alone" first, then ours, then DDP with each bucket size."""
    base, loss_of = make()
    alone = copy.deepcopy(base)
    steps = {"alone": (runner(alone, loss_of, sgd(alone)), alone)}
    for name in ("none", *compressions):
        ours = copy.deepcopy(base)
        kind = getattr(hvd.Compression, name)
        wrapped = hvd.DistributedOptimizer(sgd(ours), ours.named_parameters(), compression=kind)
        label = "horovod" if name == "none" else f"horovod {name}"
        steps[label] = (runner(ours, loss_of, wrapped), ours)
    for megabytes in BUCKETS_MB:
        model = DistributedDataParallel(copy.deepcopy(base), bucket_cap_mb=megabytes)
        steps[f"ddp {megabytes} MB"] = (runner(model, loss_of, sgd(model)), model)
    return steps


def cpu_seconds():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def sent_bytes(interface):
    if interface is None:
        return 0
    with open(f"/sys/class/net/{interface}/statistics/tx_bytes", encoding="ascii") as file:
        return int(file.read())


def measure(step, repetitions, interface=None):
    """Of one step: seconds, processor seconds of this rank, bytes that left by the interface."""
    dist.barrier()
    start, cpu, sent = time.perf_counter(), cpu_seconds(), sent_bytes(interface)
    for _ in range(repetitions):
        step()
    after = time.perf_counter(), cpu_seconds(), sent_bytes(interface)
    return [(b - a) / repetitions for a, b in zip((start, cpu, sent), after, strict=True)]


def check_equal(label, model):
    """Parameters that differ between ranks would make the figures worthless."""
    flat = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
    low, high = flat.clone(), flat.clone()
    dist.all_reduce(low, op=dist.ReduceOp.MIN)
    dist.all_reduce(high, op=dist.ReduceOp.MAX)
    if not torch.equal(low, high):
        raise SystemExit(f"torch_step: the parameters of {label} differ between ranks")


def compare(name, turns, repetitions, interface, compressions):
    seen = {}
    steps = contestants(MODELS[name], compressions)
    for label, (step, _) in steps.items():
        measure(step, 3)
        seen[label] = []
    order = random.Random(1)  # the same on all ranks
    for _ in range(turns):
        for label in order.sample(sorted(steps), len(steps)):
            seen[label].append(measure(steps[label][0], repetitions, interface))
    for label, (_, model) in steps.items():
        if label != "alone":
            check_equal(label, model)
    times = {label: [row[0] for row in rows] for label, rows in seen.items()}
    medians = {label: statistics.median(values) for label, values in times.items()}
    best = min((label for label in medians if label.startswith("ddp")), key=medians.get)
    cpu = torch.tensor([sum(row[1] for row in rows) / turns for rows in seen.values()])
    dist.all_reduce(cpu)
    cpu = dict(zip(seen, cpu.tolist(), strict=True))

    def ratio(a, b):
        return statistics.median(x / y for x, y in zip(times[a], times[b], strict=True))

    return {
        "alone": medians["alone"],
        "horovod": medians["horovod"],
        "ddp": medians[best],
        "ddp_bucket": best,
        "horovod_by_ddp": ratio("horovod", best),
        "share_of_bound": ratio("alone", "horovod"),
        "cpu_s": {
            who: cpu[label] - cpu["alone"] for who, label in (("horovod", "horovod"), ("ddp", best))
        },
        "sent_bytes": {
            who: statistics.median(row[2] for row in seen[label])
            for who, label in (("horovod", "horovod"), ("ddp", best))
        },
        "compressed": {
            kind: {
                "by_none": ratio(f"horovod {kind}", "horovod"),
                "sent_bytes": statistics.median(row[2] for row in seen[f"horovod {kind}"]),
            }
            for kind in compressions
        },
        "all": medians,
    }


def line_of(name, row):
    """What is printed for a model."""
    text = (
        f"{name:12} alone {row['alone'] * 1e3:8.2f} ms  horovod {row['horovod'] * 1e3:8.2f}"
        f"  ddp {row['ddp'] * 1e3:8.2f} ({row['ddp_bucket']})  horovod/ddp "
        f"{row['horovod_by_ddp']:.2f}  {100 * row['share_of_bound']:.0f} % of the bound"
        f"  CPU of communication {row['cpu_s']['horovod'] * 1e3:.1f} and "
        f"{row['cpu_s']['ddp'] * 1e3:.1f} ms"
    )
    if row["sent_bytes"]["horovod"]:
        text += "  sent " + " and ".join(
            f"{row['sent_bytes'][who] / 1e6:.2f}" for who in ("horovod", "ddp")
        )
        text += " MB"
    for kind, figures in row["compressed"].items():
        text += f"\n{'':12} {kind} {row['all'][f'horovod {kind}'] * 1e3:8.2f} ms"
        text += f"  {figures['by_none']:.2f} of horovod without"
        text += f"  sent {figures['sent_bytes'] / 1e6:.2f} MB" if figures["sent_bytes"] else ""
    return text


# ---- plot ----

BARS = {"alone": "#999999", "horovod": "#2277cc", "ddp": "#cc7722"}
PANEL_X, PANEL_Y, HEIGHT = 200, 210, 130


def panel(x, y, ranks, name, row):
    """Lines of SVG: three bars with their times."""
    longest = max(row[label] for label in BARS)
    yield f'<text x="{x}" y="{y + 20}" font-weight="bold">{name}, {ranks} ranks</text>'
    for i, (label, colour) in enumerate(BARS.items()):
        height = HEIGHT * row[label] / longest
        left, top = x + 55 * i, y + 45 + HEIGHT - height
        yield f'<rect x="{left}" y="{top:.1f}" width="45" height="{height:.1f}" fill="{colour}"/>'
        yield f'<text x="{left}" y="{top - 4:.1f}">{row[label] * 1e3:.1f}</text>'
        yield f'<text x="{left}" y="{y + 60 + HEIGHT}">{label}</text>'


def plot(runs, path):
    """Milliseconds of a step; a row of panels for each run."""
    columns = max(len(run["models"]) for run in runs)
    width, height = PANEL_X * columns + 20, PANEL_Y * len(runs) + 20
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        'font-family="sans-serif" font-size="11">',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for i, run in enumerate(sorted(runs, key=lambda run: run["ranks"])):
        for j, (name, row) in enumerate(run["models"].items()):
            place = (20 + PANEL_X * j, PANEL_Y * i)
            lines += panel(*place, run["ranks"], f"{name}, ms", row)
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join([*lines, "</svg>", ""]))


def make_parser(doc):
    """What to measure, and how often; bench/torch_ddp.py takes the same."""
    parser = argparse.ArgumentParser(description=doc.split("\n", 1)[0])
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--json", help="write the figures to this file")
    return parser


def main():
    parser = make_parser(__doc__)
    parser.add_argument("--plot", help="draw the figures into this SVG file")
    parser.add_argument("--also", nargs="+", default=[], help="JSON of other runs for the plot")
    parser.add_argument("--interface", help="count the bytes that this machine sends by it")
    kinds = ("fp16", "bf16")
    parser.add_argument(
        "--compression", nargs="+", default=[], choices=kinds, help="try these, too"
    )
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
        how = (arguments.turns, arguments.repetitions, arguments.interface, arguments.compression)
        row = compare(name, *how)
        figures[name] = row
        if hvd.rank() == 0:
            print(line_of(name, row), flush=True)
    run = {"ranks": hvd.size(), "models": figures}
    if hvd.rank() == 0 and arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(run, file, indent=1)
    if hvd.rank() == 0 and arguments.plot:
        others = []
        for path in arguments.also:
            with open(path, encoding="utf-8") as file:
                others.append(json.load(file))
        plot([*others, run], arguments.plot)
    dist.destroy_process_group()
    hvd.shutdown()


if __name__ == "__main__":
    main()
