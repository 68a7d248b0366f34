# SPDX-License-Identifier: Apache-2.0
"""Random programs of torch.distributed, compared with a reference that one process computes.

From a seed every rank makes the same plan: groups, and for each group a list of collectives and
messages. A rank works through the lists of its groups, one thread for each group, so the order
between groups is different on every rank and in every run; some operations are asynchronous and
waited for later, in another order. Some collectives are wrong on one rank on purpose: these must
fail on every rank of the group, and what follows must be right.

    horovodrun -np 4 python random_program.py --seeds 100 [--first 0]
"""

import argparse
import random
import threading
from datetime import timedelta

import torch
import torch.distributed as dist

KINDS = (
    *("all_reduce", "all_reduce", "all_reduce", "broadcast", "all_gather", "gather", "scatter"),
    *("reduce_scatter", "all_to_all", "reduce", "ring", "barrier", "object", "wrong"),
)
TYPES = (torch.float32, torch.float64, torch.int32, torch.int64, torch.uint8)
REDUCTIONS = {
    "SUM": lambda rows: rows.sum(0),
    "MAX": lambda rows: rows.max(0).values,
    "MIN": lambda rows: rows.min(0).values,
}


def make_plan(seed, size):
    """[(ranks, [operation])]; an operation is a dict of plain values."""
    rng = random.Random(seed)
    groups = [list(range(size))]
    for _ in range(rng.randrange(2, 6)):
        groups.append(sorted(rng.sample(range(size), rng.randrange(2, size + 1))))
    plan = []
    for number, ranks in enumerate(groups):
        steps = [make_operation(rng, len(ranks)) for _ in range(rng.randrange(1, 6))]
        repeats = rng.choice((1, 2, 12))  # a list that repeats is learned and runs by a plan
        odd = [make_operation(rng, len(ranks)) for _ in range(rng.randrange(3))]
        operations = steps * repeats + odd + steps * rng.choice((0, 2))
        plan.append((ranks, [{**op, "salt": (number, i)} for i, op in enumerate(operations)]))
    return plan


def make_operation(rng, count):
    kind = rng.choice(KINDS)
    return {
        "kind": kind,
        "dtype": rng.randrange(len(TYPES)),
        "shape": tuple(rng.choice((0, 1, 2, 5, 300)) for _ in range(rng.randrange(1, 3))),
        "root": rng.randrange(count),
        "reduction": rng.choice(list(REDUCTIONS)),
        "is_async": kind not in ("wrong", "object", "ring") and rng.random() < 0.5,
        "is_strided": rng.random() < 0.3,
    }


def values(op, rank, part=0):
    """The tensor of a rank of the group; small whole numbers, so that sums are exact."""
    generator = torch.Generator().manual_seed(hash((*op["salt"], rank, part)) & 0x7FFFFFFF)
    return torch.randint(0, 20, op["shape"], generator=generator).to(TYPES[op["dtype"]])


def given(op, rank, part=0):
    tensor = values(op, rank, part)
    if op["is_strided"] and tensor.dim() == 2:
        return tensor.t().contiguous().t()
    return tensor


def rows_of(op, count, part=0):
    return torch.stack([values(op, rank, part) for rank in range(count)])


def check(got, wanted, op):
    assert got.dtype == wanted.dtype and torch.equal(got, wanted), (op, got, wanted)


class Group:
    """One group of the plan on one rank."""

    def __init__(self, ranks, operations, handle, me):
        self.ranks, self.operations, self.handle = ranks, operations, handle
        self.me, self.count = ranks.index(me), len(ranks)

    def run(self, rng):
        """All operations in order; asynchronous ones are waited for at random later."""
        waiting = []
        for op in self.operations:
            work, verify = getattr(self, op["kind"])(op)
            if work is not None:
                waiting.append((work, verify))
            elif verify is not None:
                verify()
            while waiting and rng.random() < 0.4:
                self.finish(waiting.pop(rng.randrange(len(waiting))))
        rng.shuffle(waiting)
        for entry in waiting:
            self.finish(entry)

    @staticmethod
    def finish(entry):
        entry[0].wait()
        entry[1]()

    def call(self, op, function, *arguments, **options):
        return function(*arguments, group=self.handle, async_op=op["is_async"], **options)

    def all_reduce(self, op):
        tensor = given(op, self.me)
        reduction = getattr(dist.ReduceOp, op["reduction"])
        work = self.call(op, dist.all_reduce, tensor, reduction)
        wanted = REDUCTIONS[op["reduction"]](rows_of(op, self.count)).to(tensor.dtype)
        return work, lambda: check(tensor, wanted, op)

    def reduce(self, op):
        tensor = given(op, self.me)
        wanted = rows_of(op, self.count).sum(0).to(tensor.dtype)
        if self.me != op["root"]:
            wanted = tensor.clone()
        work = self.call(op, dist.reduce, tensor, self.ranks[op["root"]])
        return work, lambda: check(tensor, wanted, op)

    def broadcast(self, op):
        tensor = given(op, self.me)
        work = self.call(op, dist.broadcast, tensor, self.ranks[op["root"]])
        return work, lambda: check(tensor, values(op, op["root"]), op)

    def all_gather(self, op):
        outputs = [torch.zeros_like(values(op, 0)) for _ in range(self.count)]
        work = self.call(op, dist.all_gather, outputs, given(op, self.me))
        return work, lambda: check(torch.stack(outputs), rows_of(op, self.count), op)

    def gather(self, op):
        is_root = self.me == op["root"]
        outputs = [torch.zeros_like(values(op, 0)) for _ in range(self.count)] if is_root else None
        root = self.ranks[op["root"]]
        work = self.call(op, dist.gather, given(op, self.me), outputs, root)
        wanted = rows_of(op, self.count)
        return work, lambda: outputs is None or check(torch.stack(outputs), wanted, op)

    def scatter(self, op):
        is_root = self.me == op["root"]
        output = torch.zeros_like(values(op, 0))
        inputs = [given(op, op["root"], part) for part in range(self.count)] if is_root else None
        work = self.call(op, dist.scatter, output, inputs, self.ranks[op["root"]])
        return work, lambda: check(output, values(op, op["root"], self.me), op)

    def reduce_scatter(self, op):
        output = torch.zeros_like(values(op, 0))
        inputs = [given(op, self.me, part) for part in range(self.count)]
        work = self.call(op, dist.reduce_scatter, output, inputs)
        wanted = rows_of(op, self.count, self.me).sum(0).to(output.dtype)
        return work, lambda: check(output, wanted, op)

    def all_to_all(self, op):
        """Uneven: rank i gives rank j (i + j) % 3 rows."""
        width = op["shape"][-1]

        def rows(sender, receiver):
            count = (sender + receiver) % 3
            return torch.full((count, width), sender * 10 + receiver).to(TYPES[op["dtype"]])

        sent = [rows(self.me, other) for other in range(self.count)]
        got = [torch.zeros_like(rows(other, self.me)) for other in range(self.count)]
        work = self.call(op, dist.all_to_all, got, sent)
        wanted = torch.cat([rows(other, self.me) for other in range(self.count)])
        return work, lambda: check(torch.cat(got), wanted, op)

    def ring(self, op):
        got = torch.zeros_like(values(op, 0))
        before, after = (self.me - 1) % self.count, (self.me + 1) % self.count
        receive = dist.irecv(got, self.ranks[before], group=self.handle)
        dist.send(given(op, self.me), self.ranks[after], group=self.handle)
        return receive, lambda: check(got, values(op, before), op)

    def barrier(self, op):
        return dist.barrier(group=self.handle, async_op=op["is_async"]), lambda: None

    def object(self, op):
        everyone = [None] * self.count
        dist.all_gather_object(everyone, (self.me, op["salt"]), group=self.handle)
        assert everyone == [(rank, op["salt"]) for rank in range(self.count)], everyone
        return None, None

    def wrong(self, op):
        """One rank gives one element more."""
        tensor = torch.ones(7 + (self.me == op["root"]))
        try:
            dist.all_reduce(tensor, group=self.handle)
        except dist.DistBackendError as error:
            assert "disagree" in str(error), error
            assert "[7]" in str(error) and "[8]" in str(error), error
        else:
            raise AssertionError("ranks disagreed, but nothing happened")
        return None, None


def run_seed(seed, rank, size):
    plan = make_plan(seed, size)
    handles = [dist.new_group(ranks) for ranks, _ in plan]
    groups = [
        Group(ranks, operations, handle, rank)
        for (ranks, operations), handle in zip(plan, handles, strict=True)
        if rank in ranks
    ]
    errors = []

    def work(group, rng):
        try:
            group.run(rng)
        except BaseException as error:
            errors.append((group.ranks, error))

    rng = random.Random(seed * 1000 + rank)  # ranks differ
    rng.shuffle(groups)
    threads = [
        threading.Thread(target=work, args=(group, random.Random(rng.random())), daemon=True)
        for group in groups
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(200)
    late = [group.ranks for group, thread in zip(groups, threads, strict=True) if thread.is_alive()]
    if errors or late:
        raise SystemExit(f"seed {seed}, rank {rank}: {errors}; still running: {late}")
    for handle in handles:
        if handle is not dist.GroupMember.NON_GROUP_MEMBER:
            dist.destroy_process_group(handle)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=0)
    options = parser.parse_args()
    dist.init_process_group("horovod", timeout=timedelta(seconds=150))
    rank, size = dist.get_rank(), dist.get_world_size()
    for seed in range(options.first, options.first + options.seeds):
        run_seed(seed, rank, size)
    dist.barrier()
    dist.destroy_process_group()
    print(f"rank {rank}: {options.seeds} seeds", flush=True)


main()
