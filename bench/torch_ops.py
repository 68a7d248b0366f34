#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Single operations from Python: Horovod against torch.distributed with gloo, interleaved.

    OMP_NUM_THREADS=1 horovodrun -np 2 python bench/torch_ops.py [--json FILE]
    OMP_NUM_THREADS=1 mpirun -np 2 --bind-to none python bench/torch_ops.py
    bench/between.sh runs it with --line between two network namespaces

All run in the same processes, in turns, so that the machine's mood is the same for all. Prints the
median time of each case and the ratio to Horovod. Started by mpirun of Open MPI, its allreduce on
the same tensor is measured as well.
"""

import argparse
import ctypes
import json
import os
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


def open_mpi():
    """MPI_Allreduce of Open MPI, in place, for float tensors; None if mpirun did not start us."""
    if "OMPI_COMM_WORLD_RANK" not in os.environ:
        return None
    mpi = ctypes.CDLL("libmpi.so.40", ctypes.RTLD_GLOBAL)
    is_started = ctypes.c_int()
    mpi.MPI_Initialized(ctypes.byref(is_started))
    if not is_started.value:
        mpi.MPI_Init(None, None)
    float_, sum_, world = (
        ctypes.c_void_p(ctypes.addressof(ctypes.c_char.in_dll(mpi, name)))
        for name in ("ompi_mpi_float", "ompi_mpi_op_sum", "ompi_mpi_comm_world")
    )

    def allreduce(tensor):
        address, count = ctypes.c_void_p(tensor.data_ptr()), ctypes.c_int(tensor.numel())
        in_place = ctypes.c_void_p(1)
        if mpi.MPI_Allreduce(in_place, address, count, float_, sum_, world) != 0:
            raise RuntimeError("MPI_Allreduce failed")

    return allreduce


def cases():
    """name -> (repetitions, {library: function})."""
    mpi = open_mpi()
    small, large = torch.ones(1), torch.ones(16 << 20)
    many = [torch.ones(n) for n in resnet_sizes()]

    def hvd_many():
        handles = [hvd.allreduce_async_(t, name=f"g.{i}", op=hvd.Sum) for i, t in enumerate(many)]
        for handle in handles:
            hvd.synchronize(handle)

    def gloo_many():
        for work in [dist.all_reduce(t, async_op=True) for t in many]:
            work.wait()

    def reset():
        for t in (small, large, *many):
            t.fill_(1.0)

    table = {
        "allreduce 4 bytes": (
            200,
            {
                "horovod": lambda: hvd.allreduce(small, name="small", op=hvd.Sum),
                "gloo": lambda: dist.all_reduce(small.clone()),
            },
        ),
        "allreduce_ 64 MiB": (
            3,
            {
                "horovod": lambda: hvd.allreduce_(large, name="large", op=hvd.Sum),
                "gloo": lambda: dist.all_reduce(large),
            },
        ),
        "161 gradients, 100 MB, async": (3, {"horovod": hvd_many, "gloo": gloo_many}),
    }
    if mpi is not None:
        table["allreduce_ 64 MiB"][1]["open mpi"] = lambda: mpi(large)
        table["allreduce 4 bytes"][1]["open mpi"] = lambda: mpi(small)
    return table, reset


def line_cases():
    """Sums of 8 bytes to 64 MiB, in place: after k of them every element is size ** k."""
    table, tensors = {}, []
    for count in (8, 4 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20):
        tensor = torch.ones(count // 4)
        tensors.append(tensor)
        name = f"line.{count}"
        repetitions = 50 if count <= 64 << 10 else 10 if count <= 1 << 20 else 2

        def check(tensor=tensor, repetitions=repetitions):
            wanted = float(hvd.size()) ** repetitions
            if not torch.allclose(tensor, torch.full_like(tensor, wanted), rtol=1e-3):
                raise SystemExit(f"torch_ops: wrong sum: {tensor[0]} instead of {wanted}")

        table[f"allreduce_ {count} bytes"] = (
            repetitions,
            {
                "horovod": lambda t=tensor, n=name: hvd.allreduce_(t, name=n, op=hvd.Sum),
                "gloo": lambda t=tensor: dist.all_reduce(t),
            },
            check,
        )
    return table, lambda: [t.fill_(1.0) for t in tensors]


def measure(function, repetitions):
    dist.barrier()
    start = time.perf_counter()
    for _ in range(repetitions):
        function()
    return (time.perf_counter() - start) / repetitions


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--line", action="store_true", help="allreduces of 8 bytes to 64 MiB")
    parser.add_argument("--json", help="write the figures to this file")
    arguments = parser.parse_args()
    hvd.init()
    torch.set_num_threads(1)
    open_gloo()
    table, reset = line_cases() if arguments.line else cases()
    figures = {}
    for name, (repetitions, functions, *checks) in table.items():
        times = {label: [] for label in functions}
        for turn in range(arguments.turns + 1):
            for label, function in functions.items():
                reset()
                seconds = measure(function, repetitions)
                for check in checks:
                    check()
                if turn > 0:  # the first turn warms up
                    times[label].append(seconds)
        figures[name] = {label: statistics.median(values) for label, values in times.items()}
        if hvd.rank() == 0:
            ours = figures[name]["horovod"]
            rest = "".join(
                f"  {label} {value * 1e6:11.1f} us {value / ours:6.2f}x"
                for label, value in figures[name].items()
                if label != "horovod"
            )
            print(f"{name:32} horovod {ours * 1e6:11.1f} us{rest}", flush=True)
    if arguments.json and hvd.rank() == 0:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump({"ranks": hvd.size(), "seconds": figures}, file, indent=1)
    dist.destroy_process_group()
    hvd.shutdown()


if __name__ == "__main__":
    main()
