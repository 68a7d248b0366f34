#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long an elastic job stands still when a worker is lost.

    bench/elastic.py [--kills 40] [--every 1.5] [--ranks 4] [--spares 0] [--megabytes 4]
                     [--signal KILL] [--framework numpy] [--launcher horovodrun] [--calm 0]

Starts `horovodrun -np RANKS --min-np 1` with workers of this file: an allreduce of the given size
in each step, and a commit. A random worker gets SIGKILL, or SIGSTOP, every so many seconds. The
logs of the workers then say, for each loss,

    shrink   how long until all survivors had completed a step at the smaller size; not counted if a
             spare or a replacement was there before they met
    full     how long until the worker that takes its place had completed a step at the full size
    pause    how long the survivors' step took in which they took it in, less a usual step
    meet     how long hvd.shutdown() and hvd.init() took, from the first rank to the last
    steps    what part of the steps was done that the calm seconds before the first loss promised

`--launcher torchrun` runs the same step by PyTorch's own launcher and gloo, with a checkpoint every
100 steps: all its workers start again after a loss. Every sum is checked. Use a Python in which
Horovod is installed; `horovodrun` must be in PATH.
"""

import argparse
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

STARTED = time.monotonic()
TAIL = 100  # bytes that hold the last line of a log


# ---- a worker ----


class Log:
    """`time step size` for each step, and `epoch begin end` for each meeting, of this process.

    Its file `start` holds when it was started and when it had entered its first world.
    """

    def __init__(self, folder):
        times = f"{STARTED:.6f} {time.monotonic():.6f}\n"
        (folder / f"start.{os.getpid()}").write_text(times, encoding="ascii")
        self.steps, self.meetings = (
            open(folder / f"{name}.{os.getpid()}", "w", encoding="ascii", buffering=1)  # noqa: SIM115
            for name in ("log", "meet")
        )

    def step(self, step, size):
        self.steps.write(f"{time.monotonic():.6f} {step} {size}\n")

    def meeting(self, epoch, begin):
        self.meetings.write(f"{epoch} {begin:.6f} {time.monotonic():.6f}\n")


def check_sum(first, last, size):
    if first != last or first != size * (size + 1) / 2:
        sys.exit(f"wrong sum: {first} on {size} ranks")


def work_numpy(count):
    """hvd, state, and a function that makes a step."""
    import horovod.numpy as hvd
    import numpy as np
    from horovod.common.elastic import ObjectState

    hvd.init()
    state = ObjectState(hvd.broadcast_object, hvd.rank, step=0, weights=np.zeros(count, np.float32))

    def step():
        gradients = np.full(count, float(hvd.rank() + 1), np.float32)
        total = hvd.allreduce(gradients, name="gradients", op=hvd.Sum)
        check_sum(total[0], total[-1], hvd.size())
        state.weights = state.weights - 0.01 * total

    return hvd, state, step


def work_torch(count):
    import horovod.torch as hvd
    import torch

    hvd.init()
    parts = 16
    model = torch.nn.ParameterList([torch.zeros(count // parts) for _ in range(parts)])
    state = hvd.elastic.TorchState(model=model, step=0)

    def step():
        gradients = [torch.full_like(p, float(hvd.rank() + 1)) for p in model]
        totals = hvd.grouped_allreduce(gradients, name="gradients", op=hvd.Sum)
        check_sum(totals[0][0].item(), totals[-1][-1].item(), hvd.size())
        with torch.no_grad():
            for p, total in zip(model, totals, strict=True):
                p.sub_(total, alpha=0.01)

    return hvd, state, step


def work(folder, megabytes, framework):
    from horovod.common.elastic import make_run
    from horovod.common.library import native

    make = {"numpy": work_numpy, "torch": work_torch}[framework]
    hvd, state, step = make(int(megabytes * (1 << 20)) // 4)
    log = Log(folder)

    def reset():
        begin = time.monotonic()
        hvd.shutdown()
        hvd.init()
        log.meeting(native.generation()["epoch"], begin)

    @make_run(reset)()
    def train(state):
        while not (folder / "finish").exists():
            step()
            state.step += 1
            log.step(state.step, hvd.size())
            state.commit()

    train(state)
    hvd.shutdown()


def work_torchrun(folder, megabytes):
    """The peer: the same step with gloo, and a checkpoint to begin again from."""
    import torch
    import torch.distributed as dist

    # Keys of their own for each start, or gloo finds the addresses of the group that was lost.
    place = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    store = dist.PrefixStore(
        f"start {os.environ['TORCHELASTIC_RESTART_COUNT']}", dist.TCPStore(*place)
    )
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size)
    log = Log(folder)
    path, weights = folder / "checkpoint", torch.zeros(int(megabytes * (1 << 20)) // 4)
    step = 0
    if path.exists():
        step, weights = torch.load(path)
    while True:
        total = torch.full_like(weights, float(rank + 1))
        dist.all_reduce(total)
        check_sum(total[0].item(), total[-1].item(), size)
        weights.sub_(total, alpha=0.01)
        step += 1
        log.step(step, size)
        if step % 100 == 0 and rank == 0:
            torch.save((step, weights), folder / "checkpoint.new")
            (folder / "checkpoint.new").replace(path)
        finish = torch.tensor([int((folder / "finish").exists())])
        dist.all_reduce(finish)
        if finish.item():
            break
    dist.destroy_process_group()


# ---- the driver ----


def last_steps(folder):
    """{pid: (time, size)} of the last step of each worker that has not ended."""
    found = {}
    for path in folder.glob("log.*"):
        pid = int(path.suffix[1:])
        if not Path(f"/proc/{pid}").exists():
            continue
        with open(path, "rb") as file:
            file.seek(max(0, path.stat().st_size - TAIL))
            lines = file.read().decode("ascii").split("\n")[:-1]
        if lines and len(lines[-1].split()) == 3:
            moment, _, size = lines[-1].split()
            found[pid] = (float(moment), int(size))
    return found


def wait_for_size(folder, options, job, limit_s=60):
    """Until so many workers complete steps at the full size; their process ids."""
    deadline = time.monotonic() + limit_s
    quiet_s = options.every * 2 / 3  # a worker that has made no step for so long does not count
    while job.poll() is None and time.monotonic() < deadline:
        now = time.monotonic()
        alive = [
            pid
            for pid, (moment, size) in last_steps(folder).items()
            if size == options.ranks and now - moment < quiet_s
        ]
        if len(alive) == options.ranks:
            return alive
        time.sleep(0.02)
    raise SystemExit("elastic: the job has ended, or does not come back to its full size")


def read_rows(folder, name):
    """{pid: [the numbers of each line]} of the files with that name."""
    found = {}
    for path in folder.glob(f"{name}.*"):
        lines = path.read_text(encoding="ascii").split("\n")[:-1]
        found[int(path.suffix[1:])] = [tuple(map(float, line.split())) for line in lines]
    return found


def usual_step(logs, size):
    """The median time between two steps at that size."""
    times = [
        after[0] - before[0]
        for rows in logs.values()
        for before, after in zip(rows, rows[1:], strict=False)
        if before[2] == after[2] == size
    ]
    return statistics.median(times)


def gaps(logs, kills, ranks):
    """{"shrink", "full", "pause": seconds after each kill}"""
    found = {"shrink": [], "full": [], "pause": []}
    usual = usual_step(logs, ranks)
    for index, (moment, survivors) in enumerate(kills):
        end = kills[index + 1][0] if index + 1 < len(kills) else float("inf")

        def first(pid, wanted, moment=moment, end=end):
            times = (at for at, _, size in logs[pid] if moment < at < end and size == wanted)
            return next(times, end)

        small = max(first(pid, ranks - 1) for pid in survivors)
        if small < end:
            found["shrink"].append(small - moment)
        newcomers = [pid for pid, rows in logs.items() if rows and moment < rows[0][0] < end]
        whole = min((first(pid, ranks) for pid in newcomers), default=end)
        if whole < end:
            found["full"].append(whole - moment)
        waits = [
            after[0] - before[0] - usual
            for pid in survivors
            for before, after in zip(logs[pid], logs[pid][1:], strict=False)
            if moment < before[0] < after[0] < end and before[2] < after[2] == ranks
        ]
        if waits:
            found["pause"].append(max(waits))
    return found


def meetings(rows):
    """Seconds from the first rank that left a world to the last that had entered the next."""
    spans = {}
    for epoch, begin, end in (row for part in rows.values() for row in part):
        before = spans.get(epoch, (begin, end))
        spans[epoch] = (min(before[0], begin), max(before[1], end))
    return [end - begin for begin, end in spans.values()]


def steps_between(logs, begin, end):
    """Steps per second, without those that were repeated."""
    seen = {step for rows in logs.values() for at, step, _ in rows if begin < at <= end}
    return len(seen) / (end - begin)


def quantiles(values):
    values = sorted(values)
    if not values:
        return "none seen"
    at = {q: values[min(len(values) - 1, int(q * len(values)))] for q in (0.5, 0.9, 0.99)}
    text = "  ".join(f"p{int(q * 100)} {1e3 * value:.0f} ms" for q, value in at.items())
    return f"{text}  worst {1e3 * values[-1]:.0f} ms  ({len(values)} times)"


def command_of(options, folder):
    words = [sys.executable, __file__, "--worker", folder, "--megabytes", options.megabytes]
    words += ["--framework", options.framework]
    if options.launcher == "torchrun":
        launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        launcher += [f"--nproc-per-node={options.ranks}", f"--max-restarts={10 * options.kills}"]
        words = [*launcher, *words[1:], "--launcher", "torchrun"]
    else:
        launcher = ["horovodrun", "-np", options.ranks, "--min-np", 1]
        words = [*launcher, *(["--spares", options.spares] if options.spares else []), *words]
    return list(map(str, words))


def run_job(options, folder, job):
    """[(when, survivors) of each loss], when the calm began and when the last step was made."""
    chance, kills = random.Random(options.seed), []
    wait_for_size(folder, options, job)
    begin = time.monotonic()
    time.sleep(options.calm)
    for _ in range(options.kills):
        time.sleep(options.every)
        alive = wait_for_size(folder, options, job)
        victim = chance.choice(alive)
        kills.append((time.monotonic(), [pid for pid in alive if pid != victim]))
        os.kill(victim, signal.Signals[f"SIG{options.signal}"])
    time.sleep(options.every)
    wait_for_size(folder, options, job)
    end = time.monotonic()
    (folder / "finish").touch()
    return kills, begin, end


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--every", type=float, default=1.5, help="seconds at the full size between")
    parser.add_argument("--calm", type=float, default=0.0, help="seconds before the first loss")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--spares", type=int, default=0)
    parser.add_argument("--megabytes", type=float, default=4.0)
    parser.add_argument("--signal", choices=("KILL", "STOP"), default="KILL")
    parser.add_argument("--framework", choices=("numpy", "torch"), default="numpy")
    parser.add_argument("--launcher", choices=("horovodrun", "torchrun"), default="horovodrun")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", help="write the figures to this file")
    parser.add_argument("--logs", help="keep the logs of the workers in this folder")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    return parser.parse_args()


def main():
    options = parse_arguments()
    if options.worker and options.launcher == "torchrun":
        work_torchrun(Path(options.worker), options.megabytes)
        return
    if options.worker:
        work(Path(options.worker), options.megabytes, options.framework)
        return
    folder = Path(options.logs or tempfile.mkdtemp(prefix="elastic-"))
    folder.mkdir(exist_ok=True)
    job = subprocess.Popen(command_of(options, folder), env=dict(os.environ, OMP_NUM_THREADS="1"))
    try:
        kills, begin, end = run_job(options, folder, job)
        code = job.wait(timeout=60)
    finally:
        if job.poll() is None:
            job.terminate()
            job.wait()
    logs = read_rows(folder, "log")
    found = {**gaps(logs, kills, options.ranks), "meet": meetings(read_rows(folder, "meet"))}
    print(
        f"{options.launcher}, {options.framework}, {options.ranks} ranks, {options.spares} spares,"
        f" {options.megabytes} MB, SIG{options.signal}, exit code {code}; a usual step takes"
        f" {1e3 * usual_step(logs, options.ranks):.1f} ms"
    )
    for name, values in found.items():
        print(f"  {name:7} {quantiles(values)}")
    if options.calm and kills:
        calm = steps_between(logs, begin, kills[0][0])
        found["steps"] = steps_between(logs, kills[0][0], end) / calm
        print(f"  steps   {100 * found['steps']:.1f} % of {calm:.1f} per second")
    if options.json:
        figures = {**found, "kills": [moment for moment, _ in kills], "code": code}
        figures["options"] = vars(options)
        Path(options.json).write_text(json.dumps(figures, indent=1), encoding="utf-8")
    sys.exit(code)


if __name__ == "__main__":
    main()
