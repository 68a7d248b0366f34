#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long an elastic job stands still when a worker is killed.

    bench/elastic.py [--kills 40] [--every 1.5] [--ranks 4] [--spares 0] [--megabytes 4]

Starts `horovodrun -np RANKS --min-np 1` with workers of this file, which train without a framework:
an allreduce of the given size in each step, and a commit. A random worker gets SIGKILL every so
many seconds. The logs of the workers then say, for each kill,

    shrink   how long until all survivors had completed a step at the smaller size; not counted if a
             spare or a replacement was there before they met
    full     how long until the worker that takes its place had completed a step at the full size

Every sum is checked. Use a Python in which Horovod is installed; `horovodrun` must be in PATH.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

QUIET_S = 0.5  # a worker is alive if it has completed a step this recently


# ---- a worker ----


def work(folder, megabytes):
    import horovod.numpy as hvd
    import numpy as np
    from horovod.common.elastic import ObjectState, make_run

    hvd.init()
    count = int(megabytes * (1 << 20)) // 4
    state = ObjectState(hvd.broadcast_object, hvd.rank, step=0, weights=np.zeros(count, np.float32))
    log = open(folder / f"log.{os.getpid()}", "w", encoding="ascii", buffering=1)  # noqa: SIM115

    def reset():
        hvd.shutdown()
        hvd.init()

    @make_run(reset)()
    def train(state):
        while not (folder / "finish").exists():
            gradients = np.full(count, float(hvd.rank() + 1), np.float32)
            total = hvd.allreduce(gradients, name="gradients", op=hvd.Sum)
            if total[0] != total[-1] or total[0] != hvd.size() * (hvd.size() + 1) / 2:
                sys.exit(f"wrong sum: {total[0]} on {hvd.size()} ranks")
            state.weights = state.weights - 0.01 * total
            state.step += 1
            log.write(f"{time.monotonic():.6f} {state.step} {hvd.size()}\n")
            state.commit()

    train(state)
    hvd.shutdown()


# ---- the driver ----


def last_steps(folder):
    """{pid: (time, size)} of the last step of each worker."""
    found = {}
    for path in folder.glob("log.*"):
        lines = path.read_text(encoding="ascii").splitlines()
        if lines and len(lines[-1].split()) == 3:
            moment, _, size = lines[-1].split()
            found[int(path.suffix[1:])] = (float(moment), int(size))
    return found


def wait_for_size(folder, ranks, job, limit_s=60):
    """Until so many workers complete steps at that size."""
    deadline = time.monotonic() + limit_s
    while job.poll() is None and time.monotonic() < deadline:
        now = time.monotonic()
        alive = [
            pid
            for pid, (moment, size) in last_steps(folder).items()
            if size == ranks and now - moment < QUIET_S
        ]
        if len(alive) == ranks:
            return alive
        time.sleep(0.02)
    raise SystemExit("elastic: the job has ended, or does not come back to its full size")


def read_logs(folder):
    """{pid: [(time, size) of each step]}"""
    logs = {}
    for path in folder.glob("log.*"):
        rows = map(str.split, path.read_text(encoding="ascii").splitlines())
        logs[int(path.suffix[1:])] = [(float(moment), int(size)) for moment, _, size in rows]
    return logs


def gaps(logs, kills, ranks):
    """Seconds from each kill to the survivors' first step, and to the newcomer's first."""
    shrink, full = [], []
    for index, (moment, survivors) in enumerate(kills):
        end = kills[index + 1][0] if index + 1 < len(kills) else float("inf")

        def first(pid, wanted, moment=moment, end=end):
            return next((at for at, size in logs[pid] if moment < at < end and size == wanted), end)

        small = max(first(pid, ranks - 1) for pid in survivors)
        if small < end:
            shrink.append(small - moment)
        newcomers = [pid for pid, rows in logs.items() if rows and moment < rows[0][0] < end]
        whole = min((first(pid, ranks) for pid in newcomers), default=end)
        if whole < end:
            full.append(whole - moment)
    return shrink, full


def quantiles(values):
    values = sorted(values)
    if not values:
        return "none seen"
    at = {q: values[min(len(values) - 1, int(q * len(values)))] for q in (0.5, 0.9, 0.99)}
    text = "  ".join(f"p{int(q * 100)} {1e3 * value:.0f} ms" for q, value in at.items())
    return f"{text}  worst {1e3 * values[-1]:.0f} ms  ({len(values)} kills)"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--every", type=float, default=1.5, help="seconds at the full size between")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--spares", type=int, default=0)
    parser.add_argument("--megabytes", type=float, default=4.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", help="write the figures to this file")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(Path(options.worker), options.megabytes)
        return
    chance = random.Random(options.seed)
    folder = Path(tempfile.mkdtemp(prefix="elastic-"))
    command = ["horovodrun", "-np", str(options.ranks), "--min-np", "1"]
    command += ["--spares", str(options.spares)] if options.spares else []
    command += [sys.executable, __file__, "--worker", folder]
    command += ["--megabytes", str(options.megabytes)]
    job = subprocess.Popen(list(map(str, command)), env=dict(os.environ, OMP_NUM_THREADS="1"))
    kills = []
    for _ in range(options.kills):
        time.sleep(options.every)
        alive = wait_for_size(folder, options.ranks, job)
        victim = chance.choice(alive)
        kills.append((time.monotonic(), [pid for pid in alive if pid != victim]))
        os.kill(victim, signal.SIGKILL)
    time.sleep(options.every)
    wait_for_size(folder, options.ranks, job)
    (folder / "finish").touch()
    code = job.wait(timeout=60)
    shrink, full = gaps(read_logs(folder), kills, options.ranks)
    print(
        f"{options.ranks} ranks, {options.spares} spares, {options.megabytes} MB, exit code {code}"
    )
    print(f"  survivors at the smaller size: {quantiles(shrink)}")
    print(f"  full size again:               {quantiles(full)}")
    if options.json:
        figures = {"shrink_s": shrink, "full_s": full, "code": code, **vars(options)}
        Path(options.json).write_text(json.dumps(figures, indent=1), encoding="utf-8")
    sys.exit(code)


if __name__ == "__main__":
    main()
