# SPDX-License-Identifier: Apache-2.0
"""Programs in which a rank does something wrong; the argument says what.

Every rank prints what became of it. Rank 1 is the culprit. The time limit of the groups is long
where an error must come at once, and short where only the limit can tell.
"""

import os
import re
import signal
import sys
import threading
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

START = time.monotonic()
# The first bucket fails because the ranks disagree; a later one, if rank 1 has left by then.
LEFT = "disagree|rank 1.*shut down|shut down.*rank 1|rank 1.*(died|left)"


def begin(seconds):
    dist.init_process_group("horovod", timeout=timedelta(seconds=seconds))
    return dist.get_rank()


def make_model(**options):
    torch.manual_seed(1)
    layers = nn.Sequential(*(nn.Linear(64, 64) for _ in range(6)))
    return DistributedDataParallel(layers, bucket_cap_mb=0.02, **options)


def step(model):
    model.zero_grad()
    model(torch.ones(4, 64)).sum().backward()


def expect(function, *parts):
    """The call raises an exception of torch.distributed whose text has these patterns."""
    began = time.monotonic()
    try:
        function()
    except RuntimeError as error:  # DDP and futures pass errors on as plain ones
        text = str(error)
        assert all(re.search(part, text, re.DOTALL) for part in parts), text
        print(f"told after {time.monotonic() - began:.1f} s: {text[:300]}", flush=True)
    else:
        raise AssertionError("nothing was raised")


def warm_up(seconds):
    """A rank and its model after three right steps."""
    rank, model = begin(seconds), make_model()
    for _ in range(3):
        step(model)
    return rank, model


def fail(grad):
    raise ValueError("the gradient is bad")


def raises_in_backward():
    """The script of rank 1 dies of an exception between two buckets."""
    rank, model = warm_up(120)
    if rank == 1:
        model.module[2].weight.register_hook(fail)
        step(model)
    expect(lambda: step(model), "ank 1")


def raises_and_goes_on():
    """Rank 1 catches its exception and calls something else."""
    rank, model = warm_up(120)
    if rank == 1:
        hook = model.module[2].weight.register_hook(fail)
        try:
            step(model)
        except ValueError:
            hook.remove()
        expect(dist.barrier, "disagree")
    else:
        expect(lambda: step(model), LEFT)


def stuck():
    """Rank 1 is stopped in the middle of a step."""
    rank, model = warm_up(6)
    if rank == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    expect(lambda: step(model), "Timed out", "1")


def no_sync_alone():
    """Rank 1 leaves out the synchronisation of one step, and ends one step early."""
    rank = begin(120)
    model = make_model()
    for _ in range(3):
        step(model)
    if rank == 1:
        with model.no_sync():
            step(model)
        step(model)
        dist.destroy_process_group()
        print("told nothing", flush=True)
        return
    step(model)
    expect(lambda: step(model), LEFT)
    dist.destroy_process_group()


def unused_differ():
    """Each rank uses another part of the model, and another one in every step."""
    rank = begin(120)

    def make_parts():
        torch.manual_seed(1)
        return nn.ModuleList(nn.Linear(8, 8) for _ in range(5))

    class Parts(nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = make_parts()

        def forward(self, x, used):
            return sum(self.parts[i](x).square().mean() for i in used)

    def used_by(which, turn):
        return [i for i in range(4) if (i + turn) % 3 == which or i == turn % 4]  # never part 4

    model = DistributedDataParallel(Parts(), find_unused_parameters=True, bucket_cap_mb=0.0002)
    alone = Parts()
    x = torch.ones(4, 8)
    for turn in range(8):
        for m in (model, alone):
            m.zero_grad()
        model(x, used_by(rank, turn)).backward()
        sum(alone(x, used_by(r, turn)) for r in (0, 1)).div(2).backward()
        for p, q in zip(model.module.parameters(), alone.parameters(), strict=True):
            wanted = torch.zeros_like(q) if q.grad is None else q.grad
            torch.testing.assert_close(torch.zeros_like(p) if p.grad is None else p.grad, wanted)
    dist.destroy_process_group()


def other_members():
    """Rank 1 makes another group than the others think."""
    rank = begin(120)
    ranks = [0, 1] if rank != 1 else [1, 2]
    limit = timedelta(seconds=6)

    def make():
        group = dist.new_group(ranks, use_local_synchronization=True, timeout=limit)
        dist.all_reduce(torch.ones(3), group=group)

    if rank < 2:
        expect(make, "imed out")
    tensor = torch.ones(2)
    dist.all_reduce(tensor)
    assert tensor[0].item() == 3
    print("told the end", flush=True)
    dist.destroy_process_group()


def destroyed_in_flight():
    """Rank 0 destroys its groups while operations are in flight that rank 1 never joins."""
    rank = begin(8)
    if rank == 0:
        group_work = dist.all_reduce(torch.ones(5), async_op=True)
        recv = dist.irecv(torch.zeros(2), 1)
    dist.destroy_process_group()
    if rank == 0:
        expect(group_work.wait, "")
        assert not recv.is_completed() or recv.exception() is not None
    rank = begin(30)
    tensor = torch.ones(3)
    dist.all_reduce(tensor)
    assert tensor[0].item() == 2
    dist.destroy_process_group()
    print("told the end", flush=True)


def waits_in_threads():
    """Many threads wait for one operation, each in its own way, while rank 1 is late."""
    rank = begin(60)
    if rank == 1:
        time.sleep(2)
    tensor = torch.ones(10_000)
    work = dist.all_reduce(tensor, async_op=True)
    seen = []

    def short():
        try:
            work.wait(timedelta(milliseconds=300))
            seen.append("waited")
        except dist.DistBackendError:
            seen.append("timed out")

    def poll():
        while not work.is_completed():
            time.sleep(0.01)
        seen.append("polled")

    ways = [
        short,
        short,
        poll,
        lambda: seen.append(("future", work.get_future().wait()[0][0].item())),
        lambda: seen.append(("wait", work.wait())),
        lambda: seen.append(("result", work.result()[0][0].item())),
    ]
    threads = [threading.Thread(target=way) for way in ways * 3]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not any(thread.is_alive() for thread in threads), seen
    assert seen.count(("future", 2.0)) == 3 and seen.count(("wait", True)) == 3, seen
    assert seen.count(("result", 2.0)) == 3 and seen.count("polled") == 3, seen
    assert tensor[0].item() == 2
    dist.destroy_process_group()
    print("told the end", flush=True)


def other_order():
    """Ranks call collectives of one group in different orders."""
    rank = begin(120)
    calls = [lambda: dist.all_reduce(torch.ones(4)), lambda: dist.broadcast(torch.ones(9), 0)]
    for _ in range(20):
        for call in calls if rank != 1 else reversed(calls):
            expect(call, "disagree")
    step(make_model())
    dist.destroy_process_group()


def workers():
    """Workers of a DataLoader are forked while operations are in flight."""
    begin(120)
    model = make_model()
    data = torch.utils.data.TensorDataset(torch.ones(24, 64))
    for _ in range(2):
        loader = torch.utils.data.DataLoader(data, 4, num_workers=2)
        work = dist.all_reduce(torch.ones(5), async_op=True)
        for (x,) in loader:
            model.zero_grad()
            model(x).sum().backward()
        work.wait()
    dist.destroy_process_group()
    print("told the end", flush=True)


def bad_callback():
    """A callback of a future raises; operations go on."""
    begin(60)

    def fail(future):
        raise KeyError("of the callback")

    for _ in range(5):
        future = dist.all_reduce(torch.ones(3), async_op=True).get_future().then(fail)
        expect(future.wait, "of the callback")
    tensor = torch.ones(3)
    dist.all_reduce(tensor)
    assert tensor[0].item() == dist.get_world_size()
    dist.destroy_process_group()


globals()[sys.argv[1]]()
print(f"ended after {time.monotonic() - START:.1f} s", flush=True)
