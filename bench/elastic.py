#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long an elastic job stands still when a worker is lost.

    bench/elastic.py [--kills 40] [--every 1.5] [--ranks 4] [--spares 0] [--megabytes 4]
                     [--signal KILL] [--framework numpy] [--launcher horovodrun] [--calm 0]
    bench/elastic.py --period 60 --kills 10 [--spares 1]

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
100 steps: all its workers start again after a loss. `--launcher torchft` runs it with torchft: four
replicas of one process, its lighthouse, and this file starts a replica again that was lost;
`--limit 1` lowers all its time limits to so many seconds (0: its defaults). Every sum is checked.
Use a Python in which Horovod, or torchft, is installed; `horovodrun` must be in PATH.

`--period S` is another measurement: one loss every S seconds, at whatever size the job is then,
against the same job without losses for the same time. It prints which part of the steps was kept,
and how much that would be with one loss a minute.
"""

import argparse
import contextlib
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


def work_torchft(folder, megabytes, limit_s):
    """Another peer: each process is a replica, and replicas go on without one that was lost."""
    from datetime import timedelta

    import torch
    import torch.distributed as dist
    from torchft import Manager, ProcessGroupGloo

    store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    weights, limits = torch.zeros(int(megabytes * (1 << 20)) // 4), {}
    group = ProcessGroupGloo()
    if limit_s > 0:
        limit = timedelta(seconds=limit_s)
        group = ProcessGroupGloo(timeout=limit)
        # the first quorum of a replica waits for the others to finish their step
        limits = {"timeout": limit, "quorum_timeout": timedelta(seconds=60)}
    manager = Manager(
        pg=group,
        load_state_dict=lambda state: weights.copy_(state["weights"]),
        state_dict=lambda: {"weights": weights},
        min_replica_size=1,
        rank=0,
        world_size=1,
        store_addr="localhost",
        store_port=store.port,
        replica_id=f"{os.environ['REPLICA']}",
        **limits,
    )
    log = Log(folder)
    while not (folder / "finish").exists():
        manager.start_quorum()
        total = torch.ones_like(weights)
        manager.allreduce(total).wait()  # the average; a replica that gets its state adds nothing
        if not manager.should_commit():
            continue
        if not 0 < total[0] == total[-1] <= 1:
            sys.exit(f"wrong average: {total[0]}")
        weights.sub_(total, alpha=0.01)
        log.step(manager.current_step(), manager.num_participants())
    manager.shutdown(wait=False)
    os._exit(0)


def supervise_torchft(folder, options):
    """The lighthouse and the replicas; one that was lost is started again."""
    port = 20000 + os.getpid() % 20000
    words = ["torchft_lighthouse", "--min_replicas", "1", "--bind", f"[::]:{port}"]
    if options.limit > 0:
        limit_ms = str(int(1000 * options.limit))
        words += ["--heartbeat_timeout_ms", limit_ms, "--join_timeout_ms", limit_ms]
    lighthouse = subprocess.Popen([Path(sys.executable).parent / words[0], *words[1:]])
    command = [*base_command(options, folder), "--launcher", "torchft", "--limit", options.limit]

    def start(replica):
        place = {"REPLICA": str(replica), "TORCHFT_LIGHTHOUSE": f"http://localhost:{port}"}
        environment = {**os.environ, **place, "RUST_LOG": "error"}
        return subprocess.Popen(list(map(str, command)), env=environment)

    replicas = [start(i) for i in range(options.ranks)]
    try:
        while not (folder / "finish").exists():
            for i, replica in enumerate(replicas):
                if replica.poll() is not None:
                    replicas[i] = start(i)
            time.sleep(0.01)
        for replica in replicas:
            replica.wait(timeout=60)
    finally:
        for process in [*replicas, lighthouse]:
            process.kill()


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


def base_command(options, folder):
    words = [sys.executable, __file__, "--worker", folder, "--megabytes", options.megabytes]
    return [*words, "--framework", options.framework]


def command_of(options, folder):
    words = base_command(options, folder)
    if options.launcher == "torchft":
        words += ["--supervise", "--launcher", "torchft", "--limit", options.limit]
        words += ["--ranks", options.ranks]
    elif options.launcher == "torchrun":
        launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        launcher += [f"--nproc-per-node={options.ranks}", f"--max-restarts={10 * options.kills}"]
        words = [*launcher, *words[1:], "--launcher", "torchrun"]
    else:
        launcher = ["horovodrun", "-np", options.ranks, "--min-np", 1]
        words = [*launcher, *(["--spares", options.spares] if options.spares else []), *words]
    return list(map(str, words))


def run_periods(options, folder, job, losses):
    """The steps of `losses` periods, or of as many as there are to be, if there is no loss."""
    chance = random.Random(options.seed)
    wait_for_size(folder, options, job)
    begin = time.monotonic()
    for index in range(options.kills):
        time.sleep(max(0, begin + (index + 0.5) * options.period - time.monotonic()))
        alive = sorted(last_steps(folder))
        if losses:
            os.kill(chance.choice(alive), signal.Signals[f"SIG{options.signal}"])
    end = begin + options.kills * options.period
    time.sleep(max(0, end - time.monotonic()))
    (folder / "finish").touch()
    code = job.wait(timeout=60)
    if code != 0:
        raise SystemExit(f"elastic: the job has ended with {code}")
    return steps_between(read_rows(folder, "log"), begin, end) * (end - begin)


def measure_periods(options):
    """Without losses and with them, by turns; what is kept."""
    steps = {}
    for losses in (False, True):
        folder = Path(tempfile.mkdtemp(prefix="elastic-"))
        with started(options, folder) as job:
            steps[losses] = run_periods(options, folder, job, losses)
    kept = steps[True] / steps[False]
    lost_s = (1 - kept) * options.period
    print(
        f"{options.launcher}, {options.framework}, {options.ranks} ranks, {options.spares} spares,"
        f" {options.megabytes} MB: {options.kills} losses (SIG{options.signal}), one every"
        f" {options.period:g} s: {steps[True]:.0f} steps, without losses {steps[False]:.0f} in the"
        f" same time: {100 * kept:.1f} % kept, {lost_s:.2f} s lost each time"
    )
    if options.period != 60:
        print(f"  scaled to one loss a minute: {100 * (1 - lost_s / 60):.1f} %")
    if options.json:
        figures = {"kept": kept, "steps": steps[True], "steps_without": steps[False]}
        figures["options"] = vars(options)
        Path(options.json).write_text(json.dumps(figures, indent=1), encoding="utf-8")


@contextlib.contextmanager
def started(options, folder):
    job = subprocess.Popen(command_of(options, folder), env=dict(os.environ, OMP_NUM_THREADS="1"))
    try:
        yield job
    finally:
        if job.poll() is None:
            job.terminate()
            job.wait()


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
    launchers = ("horovodrun", "torchrun", "torchft")
    parser.add_argument("--launcher", choices=launchers, default="horovodrun")
    parser.add_argument("--limit", type=float, default=0.0, help="seconds, for torchft")
    parser.add_argument("--period", type=float, help="seconds from one loss to the next")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", help="write the figures to this file")
    parser.add_argument("--logs", help="keep the logs of the workers in this folder")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--supervise", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def run_worker(options):
    folder = Path(options.worker)
    if options.supervise:
        supervise_torchft(folder, options)
    elif options.launcher == "torchft":
        work_torchft(folder, options.megabytes, options.limit)
    elif options.launcher == "torchrun":
        work_torchrun(folder, options.megabytes)
    else:
        work(folder, options.megabytes, options.framework)


def main():
    options = parse_arguments()
    if options.worker:
        run_worker(options)
        return
    if options.period:
        measure_periods(options)
        return
    folder = Path(options.logs or tempfile.mkdtemp(prefix="elastic-"))
    folder.mkdir(exist_ok=True)
    with started(options, folder) as job:
        kills, begin, end = run_job(options, folder, job)
        code = job.wait(timeout=60)
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
