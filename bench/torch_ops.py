#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Single operations from Python: Horovod against torch.distributed with gloo, interleaved.

    OMP_NUM_THREADS=1 horovodrun -np 2 python bench/torch_ops.py [--json FILE]

Both run in the same processes, in turns, so that the machine's mood is the same for both. Prints
the median time of each case and the ratio gloo / Horovod.
"""

import argparse
import json
import statistics
import tempfile
import time

import horovod.torch as hvd
import torch
import torch.distributed as dist


def open_gloo():
    """A process group over a file that rank 0 names."""
    path = tempfile.mktemp(prefix="gloo-") if hvd.rank() == 0 else None
    path = hvd.broadcast_object(path, 0)
    dist.init_process_group(
        "gloo", init_method=f"file://{path}", rank=hvd.rank(), world_size=hvd.size()
    )


def resnet_sizes():
    """Elements of the 161 gradients of a ResNet-50."""
    sizes = [64 * 3 * 49, 64, 64]
    width_in = 64
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            sizes += [width_in * width, width, width, width * width * 9, width, width]
            sizes += [width * 4 * width, 4 * width, 4 * width]
            if block == 0:
                sizes += [width_in * 4 * width, 4 * width, 4 * width]
            width_in = 4 * width
    return sizes + [2048 * 1000, 1000]


def cases():
    """name -> (repetitions, horovod function, gloo function)."""
    small, large = torch.ones(1), torch.ones(16 << 20)
    many = [torch.ones(n) for n in resnet_sizes()]

    def hvd_many():
        handles = [hvd.allreduce_async_(t, name=f"g.{i}", op=hvd.Sum) for i, t in enumerate(many)]
        for handle in handles:
            hvd.synchronize(handle)

    def gloo_many():
        for work in [dist.all_reduce(t, async_op=True) for t in many]:
            work.wait()

    def reset(function):
        def run():
            for t in (small, large, *many):
                t.fill_(1.0)
            return function

        return run

    return {
        "allreduce 4 bytes": (
            200,
            lambda: hvd.allreduce(small, name="small", op=hvd.Sum),
            lambda: dist.all_reduce(small.clone()),
        ),
        "allreduce_ 64 MiB": (
            3,
            lambda: hvd.allreduce_(large, name="large", op=hvd.Average),
            lambda: dist.all_reduce(large),
        ),
        "161 gradients, 100 MB, async": (3, hvd_many, gloo_many),
    }, reset


def measure(function, repetitions):
    dist.barrier()
    start = time.perf_counter()
    for _ in range(repetitions):
        function()
    return (time.perf_counter() - start) / repetitions


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--json", help="write the figures to this file")
    arguments = parser.parse_args()
    hvd.init()
    torch.set_num_threads(1)
    open_gloo()
    table, reset = cases()
    figures = {}
    for name, (repetitions, ours, gloo) in table.items():
        times = {"horovod": [], "gloo": []}
        for turn in range(arguments.turns + 1):
            for label, function in (("horovod", ours), ("gloo", gloo)):
                reset(function)()
                seconds = measure(function, repetitions)
                if turn > 0:  # the first turn warms up
                    times[label].append(seconds)
        figures[name] = {label: statistics.median(values) for label, values in times.items()}
        if hvd.rank() == 0:
            a, b = figures[name]["horovod"], figures[name]["gloo"]
            print(
                f"{name:32} horovod {a * 1e6:11.1f} us  gloo {b * 1e6:11.1f} us  {b / a:6.2f}x",
                flush=True,
            )
    if arguments.json and hvd.rank() == 0:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump({"ranks": hvd.size(), "seconds": figures}, file, indent=1)
    dist.destroy_process_group()
    hvd.shutdown()


if __name__ == "__main__":
    main()
