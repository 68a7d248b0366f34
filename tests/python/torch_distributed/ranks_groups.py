# SPDX-License-Identifier: Apache-2.0
"""Sub-groups, messages from one rank to another, futures, threads, time limits."""

import threading
import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from world import begin

RANK, SIZE = begin()
OTHER = (RANK + 1) % SIZE
BEFORE = (RANK - 1) % SIZE
needs_two = pytest.mark.skipif(SIZE < 2, reason="one rank alone")
needs_three = pytest.mark.skipif(SIZE < 3, reason="fewer than three ranks")


# ---- messages ----


@needs_two
@pytest.mark.parametrize("count", [0, 1, 1000, 300_001])
def test_a_ring_of_messages(count):
    got = torch.zeros(count)
    work = dist.irecv(got, BEFORE)
    dist.isend(torch.full((count,), float(RANK)), OTHER).wait()
    work.wait()
    assert torch.equal(got, torch.full((count,), float(BEFORE)))


@needs_two
def test_tags_keep_messages_apart():
    if RANK == 0:
        works = [dist.isend(torch.tensor([float(tag)]), 1, tag=tag) for tag in range(20)]
    elif RANK == 1:
        works = []
        for tag in reversed(range(20)):
            got = torch.zeros(1)
            dist.recv(got, 0, tag=tag)
            assert got.item() == tag
    else:
        works = []
    for work in works:
        work.wait()


@needs_two
def test_messages_of_one_tag_keep_their_order():
    if RANK == 0:
        works = [dist.isend(torch.tensor([float(i)]), 1, tag=5) for i in range(50)]
        for work in works:
            work.wait()
    elif RANK == 1:
        for i in range(50):
            got = torch.zeros(1)
            dist.recv(got, 0, tag=5)
            assert got.item() == i


@needs_two
def test_from_any_rank():
    if RANK != 0:
        dist.send(torch.tensor([float(RANK), 7.0]), 0, tag=9)
        return
    seen = []
    for _ in range(SIZE - 1):
        got = torch.zeros(2)
        sender = dist.recv(got, tag=9)
        assert got.tolist() == [float(sender), 7.0]
        seen.append(sender)
    assert sorted(seen) == list(range(1, SIZE))


@needs_two
def test_messages_of_two_groups_do_not_mix():
    group = dist.new_group(list(range(SIZE)))
    if RANK == 0:
        first = dist.isend(torch.tensor([1.0]), 1, group=group)
        second = dist.isend(torch.tensor([2.0]), 1)
        first.wait(), second.wait()
    elif RANK == 1:
        for expected, which in ((2.0, None), (1.0, group)):
            got = torch.zeros(1)
            dist.recv(got, 0, group=which)
            assert got.item() == expected


@needs_two
def test_lengths_that_differ_fail_on_both_sides():
    if RANK == 0:
        with pytest.raises(dist.DistBackendError, match="bytes"):
            dist.send(torch.zeros(3), 1, tag=11)
    elif RANK == 1:
        with pytest.raises(dist.DistBackendError, match="bytes"):
            dist.recv(torch.zeros(2), 0, tag=11)
    dist.barrier()


@needs_two
def test_a_missing_partner_is_named():
    if RANK == 0:
        work = dist.irecv(torch.zeros(2), 1, tag=13)
        with pytest.raises(dist.DistBackendError, match=r"rank 1.*to send it"):
            work.wait(timedelta(milliseconds=200))
        dist.barrier()
        work.wait()
    else:
        dist.barrier()
        if RANK == 1:
            dist.send(torch.zeros(2), 0, tag=13)


@needs_two
def test_batch_of_messages():
    got = torch.zeros(4)
    works = dist.batch_isend_irecv(
        [
            dist.P2POp(dist.isend, torch.full((4,), float(RANK)), OTHER),
            dist.P2POp(dist.irecv, got, BEFORE),
        ]
    )
    for work in works:
        work.wait()
    assert got[0].item() == BEFORE


def test_a_message_to_oneself_is_refused():
    with pytest.raises(ValueError):
        dist.group.WORLD.send([torch.zeros(1)], RANK, 0)


@needs_two
def test_threads_exchange_messages_at_once():
    errors = []

    def talk(tag):
        try:
            for i in range(20):
                got = torch.zeros(8)
                work = dist.irecv(got, BEFORE, tag=tag)
                dist.isend(torch.full((8,), float(tag * 100 + i)), OTHER, tag=tag).wait()
                work.wait()
                assert got[0].item() == tag * 100 + i
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=talk, args=(20 + i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


# ---- groups ----


@needs_three
def test_groups_overlap_and_run_at_once():
    pairs = [(a, b) for a in range(SIZE) for b in range(a + 1, SIZE)]
    groups = {pair: dist.new_group(list(pair)) for pair in pairs}
    mine = [pair for pair in pairs if RANK in pair]
    order = mine if RANK % 2 == 0 else list(reversed(mine))
    tensors = {pair: torch.full((10,), float(RANK + 1)) for pair in mine}
    works = [dist.all_reduce(tensors[p], group=groups[p], async_op=True) for p in order]
    for work in works:
        work.wait()
    for pair in mine:
        assert tensors[pair][0].item() == sum(pair) + 2
    for group in groups.values():
        dist.destroy_process_group(group)


@needs_three
def test_only_the_members_make_a_group():
    if RANK < 2:
        group = dist.new_group([0, 1], use_local_synchronization=True)
        tensor = torch.ones(4)
        dist.all_reduce(tensor, group=group)
        assert tensor[0].item() == 2
        gathered = [None, None]
        dist.all_gather_object(gathered, RANK, group=group)
        assert gathered == [0, 1]
        dist.broadcast(tensor, 1, group=group)
    dist.barrier()


@needs_two
def test_a_group_of_the_same_ranks_is_another_group():
    first, second = dist.new_group(), dist.new_group()
    a, b = torch.ones(3), torch.full((3,), 2.0)
    groups = [(first, a), (second, b)]
    works = [
        dist.all_reduce(tensor, group=group, async_op=True)
        for group, tensor in (groups if RANK == 0 else reversed(groups))
    ]
    for work in works:
        work.wait()
    assert (a[0].item(), b[0].item()) == (SIZE, 2 * SIZE)


def test_many_groups_one_after_the_other():
    for _ in range(30):
        group = dist.new_group(list(range(SIZE)))
        tensor = torch.ones(1)
        dist.all_reduce(tensor, group=group)
        assert tensor.item() == SIZE
        dist.destroy_process_group(group)


@needs_three
def test_groups_are_freed():
    """More groups than can exist at once; ranks end them at different times."""
    from horovod.common.library import native

    before = len(native.process_sets())
    dist.barrier()
    for i in range(300):
        pair = [i % SIZE, (i + 1 + i // SIZE % (SIZE - 1)) % SIZE]
        if RANK not in pair:
            continue
        group = dist.new_group(pair, use_local_synchronization=True)
        tensor = torch.ones(4)
        work = dist.all_reduce(tensor, group=group, async_op=True)
        if min(pair) == RANK:
            work.wait()
        dist.destroy_process_group(group)  # on the other rank maybe before its end
        work.wait()
        assert tensor[0].item() == 2
    dist.barrier()
    assert len(native.process_sets()) == before


@needs_two
def test_ranks_in_another_order():
    from horovod.torch.distributed import HorovodProcessGroup

    world = dist.group.WORLD
    ranks = list(reversed(range(SIZE)))
    group = HorovodProcessGroup(
        None, ranks.index(RANK), SIZE, timedelta(seconds=60), "reversed", ranks, 0
    )
    outputs = [torch.zeros(1) for _ in range(SIZE)]
    group.allgather([outputs], [torch.tensor([float(RANK)])]).wait()
    assert [o.item() for o in outputs] == ranks
    inputs = [torch.tensor([float(10 * RANK + to)]) for to in range(SIZE)]
    group.alltoall(outputs, inputs).wait()
    assert [o.item() for o in outputs] == [10 * r + ranks.index(RANK) for r in ranks]
    part = torch.zeros(1)
    group.reduce_scatter([part], [[torch.tensor([float(to)]) for to in range(SIZE)]]).wait()
    assert part.item() == SIZE * ranks.index(RANK)
    assert world.size() == SIZE


# ---- ranks that disagree ----

COUNT = 3 + RANK


def zeros(count=COUNT, dtype=torch.float32):
    return torch.zeros(count, dtype=dtype)


def each(count=COUNT):
    return [zeros(count) for _ in range(SIZE)]


def gather_uneven():
    """Rank i gives i + 1 elements; the last rank expects as many of rank 0 and 1."""
    counts = [rank + 1 for rank in range(SIZE)]
    if RANK == SIZE - 1:
        counts[:2] = reversed(counts[:2])
    dist.all_gather([zeros(n) for n in counts], zeros(counts[RANK]))


DISAGREEMENTS = {
    "all_gather_uneven": gather_uneven,
    "all_reduce": lambda: dist.all_reduce(zeros()),
    "all_reduce_bits": lambda: dist.all_reduce(zeros(dtype=torch.int32), dist.ReduceOp.BOR),
    "all_reduce_type": lambda: dist.all_reduce(zeros(3, [torch.int32, torch.int64][RANK % 2])),
    "all_reduce_empty": lambda: dist.all_reduce(zeros(RANK)),
    "reduce": lambda: dist.reduce(zeros(), 0),
    "broadcast": lambda: dist.broadcast(zeros(), 0),
    "broadcast_root": lambda: dist.broadcast(zeros(3), RANK),
    "all_gather": lambda: dist.all_gather(each(), zeros()),
    "all_gather_into": lambda: dist.all_gather_into_tensor(zeros(COUNT * SIZE), zeros()),
    "gather": lambda: dist.gather(zeros(), each() if RANK == 0 else None, 0),
    "gather_root": lambda: dist.gather(zeros(3), each(3), RANK),
    "scatter": lambda: dist.scatter(zeros(), each() if RANK == 0 else None, 0),
    "reduce_scatter": lambda: dist.reduce_scatter(zeros(), each()),
    "reduce_scatter_tensor": lambda: dist.reduce_scatter_tensor(zeros(), zeros(COUNT * SIZE)),
    "all_to_all": lambda: dist.all_to_all_single(zeros(COUNT * SIZE), zeros(COUNT * SIZE)),
    "kinds": lambda: dist.all_reduce(zeros(3)) if RANK else dist.broadcast(zeros(3), 0),
    "barrier": lambda: dist.all_reduce(zeros(3)) if RANK else dist.barrier(),
}


def sums_are_right():
    for count in (3, 5, 3):
        tensor = torch.ones(count)
        dist.all_reduce(tensor)
        assert tensor[0].item() == SIZE


@needs_two
@pytest.mark.parametrize("repeats", [0, 30])
@pytest.mark.parametrize("case", DISAGREEMENTS)
def test_ranks_that_disagree_fail_at_once(case, repeats):
    for _ in range(repeats):  # a step that repeats: names are known, a plan runs
        dist.all_reduce(torch.ones(3))
    with pytest.raises(dist.DistBackendError) as caught:
        DISAGREEMENTS[case]()
    assert "Timed out" not in str(caught.value)
    assert "disagree" in str(caught.value) or "expects" in str(caught.value), caught.value
    sums_are_right()


@needs_two
def test_sizes_that_differ_name_the_ranks_and_the_sizes():
    with pytest.raises(dist.DistBackendError) as caught:
        dist.all_reduce(zeros(5 if RANK == 1 else 4))
    for part in ("all_reduce", "[5]", "[4]", "ranks ", "1"):
        assert part in str(caught.value), caught.value
    sums_are_right()


@needs_two
def test_others_in_flight_survive_a_disagreement():
    tensors = [torch.ones(10 + i) for i in range(12)]
    tensors[5] = zeros()
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    for i, work in enumerate(works):
        if i == 5:
            with pytest.raises(dist.DistBackendError, match="disagree"):
                work.wait()
        else:
            work.wait()
            assert tensors[i][0].item() == SIZE
    sums_are_right()


# ---- works ----


def test_futures():
    tensor = torch.ones(3)
    future = dist.all_reduce(tensor, async_op=True).get_future()
    doubled = future.then(lambda f: f.value()[0] * 2).then(lambda f: f.value() + 1)
    assert doubled.wait()[0].item() == 2 * SIZE + 1
    assert future.done()


def test_a_callback_may_start_and_wait_for_another():
    def again(future):
        tensor = future.value()[0]
        dist.all_reduce(tensor)
        return tensor

    future = dist.all_reduce(torch.ones(2), async_op=True).get_future().then(again)
    assert future.wait()[0].item() == SIZE * SIZE


def test_several_threads_wait_for_one():
    work = dist.all_reduce(torch.ones(100_000), async_op=True)
    results = []
    threads = [threading.Thread(target=lambda: results.append(work.wait())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 4
    assert work.is_completed() and work.is_success()


@needs_two
def test_a_time_limit_is_kept_and_names_who_is_missing():
    group = dist.new_group(timeout=timedelta(seconds=1))
    if RANK == 0:
        work = dist.all_reduce(torch.ones(2), group=group, async_op=True)
        with pytest.raises(dist.DistBackendError, match=r"Timed out.*rank 1"):
            work.wait()
    dist.barrier()
    if RANK != 0:
        dist.all_reduce(torch.ones(2), group=group)
    else:
        while not work._tasks[0].is_done:
            time.sleep(0.01)
    dist.barrier()


@needs_two
def test_a_future_fails_when_the_time_is_over():
    group = dist.new_group(timeout=timedelta(seconds=1))
    if RANK == 0:
        work = dist.all_reduce(torch.ones(2), group=group, async_op=True)
        with pytest.raises(Exception, match="Timed out"):
            work.get_future().wait()
        assert isinstance(work.exception(), dist.DistBackendError)
    dist.barrier()
    if RANK != 0:
        dist.all_reduce(torch.ones(2), group=group)
    dist.barrier()


@needs_two
def test_monitored_barrier_names_the_ranks_that_did_not_come():
    group = dist.new_group()
    if RANK == 0:
        with pytest.raises(RuntimeError, match="Rank 1 failed to pass monitoredBarrier"):
            group.monitored_barrier(timedelta(milliseconds=300))
        with pytest.raises(RuntimeError, match="failed to pass monitoredBarrier in 300 ms"):
            group.monitored_barrier(timedelta(milliseconds=300), wait_all_ranks=True)
    dist.barrier()


def test_torch_and_horovod_share_the_world():
    import horovod.torch as hvd

    hvd.init()
    assert hvd.allreduce(torch.ones(2), op=hvd.Sum, name="shared")[0].item() == SIZE
    tensor = torch.ones(2)
    work = dist.all_reduce(tensor, async_op=True)
    handle = hvd.allreduce_async(torch.ones(3), op=hvd.Sum, name="shared.async")
    work.wait()
    assert hvd.synchronize(handle)[0].item() == tensor[0].item() == SIZE


def test_destroy_and_begin_again():
    import horovod.torch as hvd

    dist.destroy_process_group()
    assert hvd.is_initialized()  # horovod.torch or the launcher began it before the group
    begin()
    tensor = torch.ones(2)
    dist.all_reduce(tensor)
    assert tensor[0].item() == SIZE
