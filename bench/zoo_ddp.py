# SPDX-License-Identifier: Apache-2.0
"""The broken programs of tests/zoo as ordinary DDP programs, and what both print.

    python bench/zoo_ddp.py [--limit 40] [--only NAME ...] [--folder DIR]

For each program, one after the other, with 2 ranks: `torchrun` with DDP and gloo and their own
limits, the same with a limit of 2 s for each collective, and `horovodrun` with the program of
tests/zoo and a stall limit of 2 s. Printed are the seconds from the moment at which both ranks have
initialised to the first line that a reader sees, and to the end of the job. --folder keeps the
outputs. Nothing here is part of the tests.
"""

import argparse
import os
import re
import signal
import subprocess
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path

PROGRAMS = Path(__file__).resolve().parents[1] / "tests" / "zoo" / "torch_programs"
RANKS = 2
LIMIT_S = 2
READY = "zoo: ready"

# ---- the programs, with DDP ----


def train(steps, before=lambda step: None):
    import torch
    from torch.nn.parallel import DistributedDataParallel

    model = DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(steps):
        before(step)
        optimizer.zero_grad()
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()


def on_rank1(at, action):
    def before(step):
        import torch.distributed as dist

        if dist.get_rank() == 1 and step == at:
            action()

    return before


def rank0_branch(rank, dist, torch):
    train(5)
    if rank == 0:
        dist.all_reduce(torch.ones(1))
    dist.all_reduce(torch.ones(4))


def unequal_batches(rank, dist, torch):
    train(4 if rank == 1 else 6)
    dist.all_reduce(torch.ones(1))


def shape(rank, dist, torch):
    dist.all_reduce(torch.ones(3 if rank == 1 else 4, 2))


def dtype(rank, dist, torch):
    dist.all_reduce(torch.ones(4, dtype=torch.float64 if rank == 1 else torch.float32))


def order(rank, dist, torch):
    metrics = {"accuracy": torch.full((1,), 0.5), "loss": torch.full((1,), 8.0)}
    for name in ["accuracy", "loss"] if rank == 0 else ["loss", "accuracy"]:
        dist.all_reduce(metrics[name])
    print(f"rank {rank}: accuracy {metrics['accuracy'].item()}, loss {metrics['loss'].item()}")


def duplicate_name(rank, dist, torch):
    """There are no names: rank 1 gives the same tensor twice."""
    tensors = {"a": torch.full((1 << 20,), 1.0), "b": torch.full((1 << 20,), 8.0)}
    names = ["a", "a"] if rank == 1 else ["a", "b"]
    works = [dist.all_reduce(tensors[name], async_op=True) for name in names]
    for work in works:
        work.wait()
    print(f"rank {rank}: a {tensors['a'][0].item()}, b {tensors['b'][0].item()}")


def killed(rank, dist, torch):
    train(100000, on_rank1(20, lambda: os.kill(os.getpid(), signal.SIGKILL)))


def stopped(rank, dist, torch):
    train(100000, on_rank1(20, lambda: os.kill(os.getpid(), signal.SIGSTOP)))


def slow_loader(rank, dist, torch):
    train(10, on_rank1(3, lambda: os.read(os.pipe()[0], 1)))


def exception(rank, dist, torch):
    def check():
        raise ValueError("sample 17 has no label")

    train(100000, on_rank1(3, check))


def early_exit(rank, dist, torch):
    train(100000, on_rank1(20, lambda: sys.exit(0)))


def fork(rank, dist, torch):
    def load():
        child = os.fork()
        if child == 0:
            time.sleep(1000)
            os._exit(0)
        os.waitpid(child, 0)

    train(10, on_rank1(1, load))


def run_ddp(name, limit_s):
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo", timeout=timedelta(seconds=limit_s) if limit_s else None)
    dist.barrier()
    print(READY, flush=True)
    globals()[name](dist.get_rank(), dist, torch)
    dist.destroy_process_group()


def run_ours(name):
    """The program as it is; only hvd.init() also prints a line."""
    import runpy

    import horovod.torch as hvd

    init = hvd.init

    def init_and_print(*args, **kwargs):
        init(*args, **kwargs)
        hvd.barrier()
        print(READY, flush=True)

    hvd.init = init_and_print
    sys.argv = [str(PROGRAMS / f"{name}.py")]
    runpy.run_path(sys.argv[0], run_name="__main__")


# ---- the driver ----


def children(pid):
    """All processes below one."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in task.read_text(encoding="ascii").split():
            found += [*children(int(child)), int(child)]
    return found


def kill_all(process):
    """torchrun starts each rank in a session of its own."""
    for pid in [process.pid, *children(process.pid)]:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def watch(command, env, limit_s):
    """(seconds to the first line after the ranks were ready, to the end or None, lines)."""
    process = subprocess.Popen(
        command,
        env={**os.environ, **env},
        text=True,
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    ready, ready_s, first_s, lines = 0, None, None, []
    is_over = threading.Event()

    def end():
        if not is_over.wait(limit_s):
            kill_all(process)

    killer = None
    for line in process.stdout:
        now = time.monotonic()
        if READY in line:
            ready += 1
            if ready == RANKS:
                ready_s = now
                killer = threading.Thread(target=end)
                killer.start()
            continue
        if ready_s is not None and line.strip():
            first_s = first_s or now - ready_s
            lines.append((now - ready_s, line.rstrip()))
    code = process.wait()
    end_s = time.monotonic() - ready_s
    is_over.set()
    killer.join()
    return first_s, end_s if end_s < limit_s else None, code, lines


def seconds(value, limit_s):
    return f"{value:.1f} s" if value is not None else f"not within {limit_s:g} s"


def compare(args):
    here = str(Path(__file__).resolve())
    torchrun = [sys.executable, "-m", "torch.distributed.run", f"--nproc_per_node={RANKS}"]
    torchrun += ["--standalone", here]
    for name in args.only or sorted(path.stem for path in PROGRAMS.glob("*.py")):
        runs = {
            "ddp": ([*torchrun, "--ddp", name], {}),
            f"ddp, {LIMIT_S} s": (
                [*torchrun, "--ddp", name, "--collective-limit", str(LIMIT_S)],
                {},
            ),
            "ours": (
                ["horovodrun", "-np", str(RANKS), sys.executable, here, "--ours", name],
                {"HOROVOD_STALL_CHECK_TIME_SECONDS": str(LIMIT_S)},
            ),
        }
        for who, (command, env) in runs.items():
            env = {"OMP_NUM_THREADS": "1", **env}
            first_s, end_s, code, lines = watch(command, env, args.limit)
            print(
                f"== {name}, {who}: first line {seconds(first_s, args.limit)}, "
                f"end {seconds(end_s, args.limit)}, code {code}",
                flush=True,
            )
            for at, line in lines:
                if re.search(r"Error|stall|missing|waits|^horovodrun|rank \d: ", line):
                    print(f"   {at:5.1f} {line[:300]}", flush=True)
            if args.folder:
                args.folder.mkdir(parents=True, exist_ok=True)
                (args.folder / f"{name}.{who.replace(', ', '-').replace(' ', '')}.txt").write_text(
                    "".join(f"{at:7.2f} {line}\n" for at, line in lines), encoding="utf-8"
                )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ddp")
    parser.add_argument("--ours")
    parser.add_argument("--collective-limit", type=float, default=0)
    parser.add_argument("--limit", type=float, default=40)
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--folder", type=Path)
    args = parser.parse_args()
    if args.ddp:
        run_ddp(args.ddp, args.collective_limit)
    elif args.ours:
        run_ours(args.ours)
    else:
        compare(args)


if __name__ == "__main__":
    main()
