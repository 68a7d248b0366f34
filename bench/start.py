#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long a job takes that does nothing, and one that imports PyTorch and reduces one number.

    python bench/start.py --ranks 2 --original /path/to/0.28.1/bin/horovodrun

Wall time of the whole command, from the shell's view, by turns in random order; medians and the
range are shown. `horovodrun` and `torchrun` are those beside this Python, --original is Horovod
0.28.1 in an environment of its own with the same PyTorch.
"""

import argparse
import json
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path

BIN = Path(sys.executable).parent
FIRST = (
    "import horovod.torch as hvd, torch; hvd.init(); hvd.allreduce(torch.ones(1)); hvd.shutdown()"
)
FIRST_GLOO = (
    "import torch, torch.distributed as d; d.init_process_group('gloo');"
    "d.all_reduce(torch.ones(1)); d.destroy_process_group()"
)


def commands(ranks, original):
    """{(what, which): command}."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={ranks}"]
    torchrun += ["--master-port=0", "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0"]
    found = {
        ("launcher", "Horovod"): [BIN / "horovodrun", "-np", ranks, "true"],
        ("launcher", "DDP"): [*torchrun, "--no-python", "true"],
        ("first", "Horovod"): [BIN / "horovodrun", "-np", ranks, sys.executable, "-c", FIRST],
        ("first", "DDP"): [*torchrun, "--no-python", sys.executable, "-c", FIRST_GLOO],
    }
    if original:
        run, python = [original, "--gloo", "-np", ranks], Path(original).parent / "python"
        found["launcher", "0.28.1"] = [*run, "true"]
        found["first", "0.28.1"] = [*run, python, "-c", FIRST]
    return {key: [str(part) for part in command] for key, command in found.items()}


def timed(command):
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        sys.exit(f"start: {' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return time.perf_counter() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--original", help="horovodrun of 0.28.1")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    arguments = parser.parse_args()
    jobs = commands(arguments.ranks, arguments.original)
    times = {key: [] for key in jobs}
    for command in jobs.values():
        timed(command)  # files into the page cache
    for _ in range(arguments.turns):
        for key in random.sample(sorted(jobs), len(jobs)):
            times[key].append(timed(jobs[key]))
    for (what, which), seconds in sorted(times.items()):
        median = statistics.median(seconds)
        print(f"{what:9} {which:8} {median:6.3f} s ({min(seconds):.3f} to {max(seconds):.3f})")
    if arguments.json:
        figures = {" ".join(key): seconds for key, seconds in times.items()}
        arguments.json.write_text(json.dumps(figures, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
