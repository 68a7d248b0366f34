# SPDX-License-Identifier: Apache-2.0
"""Process sets, given at init and added later (HOROVOD_DYNAMIC_PROCESS_SETS=1)."""

import horovod.torch as hvd
import pytest
import torch
from horovod.common import process_sets as sets_module

EVEN, ODD = hvd.ProcessSet([0, 2]), hvd.ProcessSet([3, 1])


def test_before_init():
    one = hvd.ProcessSet(range(2))
    assert one.size() is None and one.rank() is None and one.process_set_id is None
    assert str(one) == "ProcessSet(process_set_id=None, ranks=[0, 1], mpi_comm=None)"
    assert hvd.ProcessSet(reversed([0, 1, 2])).ranks == [0, 1, 2]
    assert hvd.ProcessSet(i for i in (2, 1)).ranks == [1, 2]
    assert hvd.global_process_set.process_set_id == 0
    assert hvd.global_process_set.ranks == []
    with pytest.raises(ValueError):
        hvd.ProcessSet([0.5])
    with pytest.raises(TypeError):
        hvd.ProcessSet(["a", 1])
    with pytest.raises((ValueError, ModuleNotFoundError)):
        hvd.ProcessSet(5)
    with pytest.raises(AttributeError):
        hvd.init(process_sets="wrong")
    assert not hvd.is_initialized()


def test_init_with_sets():
    import os

    size = int(os.environ.get("HOROVOD_SIZE", "1"))
    if size == 4:
        hvd.init(process_sets=[EVEN, ODD])
        assert (EVEN.process_set_id, ODD.process_set_id) == (1, 2)
        assert ODD.ranks == [1, 3]
        mine, other = (EVEN, ODD) if hvd.rank() % 2 == 0 else (ODD, EVEN)
        assert mine.included() and not other.included()
        assert mine.size() == 2 and mine.rank() == hvd.rank() // 2 and other.size() == 2
        with pytest.raises(ValueError, match="not part of provided process set"):
            other.rank()
        x = torch.full((3,), hvd.rank() + 1.0)
        expected = sum(r + 1 for r in mine.ranks)
        assert hvd.allreduce(x, op=hvd.Sum, process_set=mine).eq(expected).all()
        assert hvd.allreduce(x, process_set=mine).eq(expected / 2).all()
        assert hvd.allgather(x[:1], process_set=mine).tolist() == [r + 1.0 for r in mine.ranks]
        root = mine.ranks[1]
        assert hvd.broadcast(x, root, process_set=mine).eq(root + 1.0).all()
        assert hvd.alltoall(x[:2], process_set=mine).tolist() == [r + 1.0 for r in mine.ranks]
        assert hvd.reducescatter(x[:2], op=hvd.Sum, process_set=mine).tolist() == [expected]
        assert hvd.broadcast_object(hvd.rank(), root, process_set=mine) == root
        hvd.barrier(process_set=mine)
        hvd.init(process_sets=[hvd.ProcessSet([0, 2])])  # already there: fine
        with pytest.raises(KeyError):
            hvd.init(process_sets=[hvd.ProcessSet([0, 1])])
    else:
        hvd.init()
    assert hvd.global_process_set.ranks == list(range(hvd.size()))
    assert hvd.global_process_set.size() == hvd.size()
    assert hvd.global_process_set.included()


def rejected(call, process_set):
    with pytest.raises(ValueError, match="not a member of the provided process set|invalid root"):
        call(process_set)


def test_not_a_member():
    if hvd.size() != 4:
        pytest.skip("needs the sets of four ranks")
    other = ODD if hvd.rank() % 2 == 0 else EVEN
    x, rank = torch.ones(2), hvd.rank()
    text = f"Allreduce: Rank {rank} is not a member of the provided process set."
    with pytest.raises(ValueError, match=text):
        hvd.allreduce(x, process_set=other)
    with pytest.raises(ValueError, match=f"Allgather: Rank {rank} is not a member"):
        hvd.allgather(x, process_set=other)
    with pytest.raises(ValueError, match=f"Alltoall: Rank {rank} is not a member"):
        hvd.alltoall(x, process_set=other)
    with pytest.raises(ValueError, match=f"Barrier: Rank {rank} is not a member"):
        hvd.barrier(process_set=other)
    with pytest.raises(ValueError, match="Invalid process set id for this rank"):
        hvd.reducescatter(x, process_set=other)
    root = other.ranks[0]
    with pytest.raises(ValueError, match=f"broadcast received invalid root rank {root}"):
        hvd.broadcast(x, root, process_set=other)
    mine = EVEN if other is ODD else ODD
    with pytest.raises(ValueError, match="broadcast received invalid root rank"):
        hvd.broadcast(x, root, process_set=mine)
    with pytest.raises(NotImplementedError, match="Adasum does not support non-global"):
        hvd.allreduce(x, op=hvd.Adasum, process_set=mine)
    assert hvd.allreduce(x, op=hvd.Sum).eq(4).all()


def test_unknown_set():
    unknown = sets_module._temp_process_set_object(99)
    text = "Allreduce: Process set provided does not exist, or has not been registered."
    with pytest.raises(ValueError, match=text):
        hvd.allreduce(torch.ones(2), process_set=unknown)
    with pytest.raises(ValueError):
        hvd.barrier(process_set=unknown)
    with pytest.raises(ValueError, match="does not exist or has not been registered"):
        unknown.size()
    assert not hvd.remove_process_set(unknown)
    assert not hvd.remove_process_set(hvd.global_process_set)
    assert not hvd.remove_process_set(hvd.ProcessSet([0]))


def test_gradients_within_a_set():
    if hvd.size() != 4:
        pytest.skip("needs the sets of four ranks")
    mine = EVEN if EVEN.included() else ODD
    x = torch.ones(2, requires_grad=True)
    for call in (
        lambda: hvd.allreduce(x, op=hvd.Sum, process_set=mine),
        lambda: hvd.allgather(x, process_set=mine),
        lambda: hvd.broadcast(x, mine.ranks[0], process_set=mine),
        lambda: hvd.alltoall(x, process_set=mine),
        lambda: hvd.reducescatter(x, op=hvd.Sum, process_set=mine),
    ):
        x.grad = None
        call().sum().backward()
        assert x.grad is not None
    hvd.allreduce(x, op=hvd.Sum, process_set=mine).sum().backward()


def test_sets_do_not_wait_for_each_other():
    if hvd.size() != 4:
        pytest.skip("needs the sets of four ranks")
    if ODD.included():
        for i in range(20):
            assert hvd.allreduce(torch.ones(1), op=hvd.Sum, name=f"i.{i}", process_set=ODD) == 2
        hvd.barrier()
        return
    pending = hvd.allreduce_async(torch.ones(1), process_set=EVEN) if hvd.rank() == 0 else None
    hvd.barrier()
    if pending is None:
        pending = hvd.allreduce_async(torch.ones(1), process_set=EVEN)
    assert hvd.synchronize(pending) == 1


def test_dynamic():
    size, rank = hvd.size(), hvd.rank()
    if size == 1:
        with pytest.raises(ValueError):
            hvd.add_process_set([0, 1])
        return
    known = 3 if size == 4 else 1
    with pytest.raises(ValueError, match="duplicate"):
        hvd.add_process_set(range(size))
    if size == 2:
        pair = hvd.add_process_set(hvd.ProcessSet([0]))
    else:
        pair = hvd.add_process_set(hvd.ProcessSet([1, 0]))
        assert pair.ranks == [0, 1]
    assert pair.process_set_id == known
    single = hvd.add_process_set([size - 1])
    assert single.process_set_id == known + 1
    with pytest.raises(ValueError, match="duplicate"):
        hvd.add_process_set(pair.ranks)
    for wrong in ([0, 99], [0, 0], [-1]):
        with pytest.raises(ValueError):
            hvd.add_process_set(wrong)
    if pair.included():
        assert hvd.allreduce(torch.ones(2), op=hvd.Sum, process_set=pair).eq(pair.size()).all()
    if single.included():
        assert single.rank() == 0
        assert hvd.allreduce(torch.ones(2), op=hvd.Sum, process_set=single).eq(1).all()
    hvd.barrier()
    assert hvd.remove_process_set(pair) is True
    assert pair.process_set_id is None
    with pytest.raises((ValueError, TypeError)):
        hvd.allreduce(torch.ones(2), process_set=pair)
    again = hvd.add_process_set(pair)
    assert again is pair and pair.process_set_id == known  # freed ids are used again
    is_left = rank == 0 and pair.size() > 1
    if is_left:
        handle = hvd.allreduce_async(torch.ones(2), name="left.over", process_set=pair)
    assert hvd.remove_process_set(pair)
    if is_left:
        with pytest.raises(hvd.HorovodInternalError, match="Process set has been removed"):
            hvd.synchronize(handle)
    assert hvd.remove_process_set(single)
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum) == size


def test_all_ranks_again():
    size = hvd.size()
    hvd.shutdown()
    copy_of_world, one = hvd.ProcessSet(range(size)), hvd.ProcessSet([0])
    if size > 1:
        with pytest.raises(ValueError, match="process_sets entry number 0 is a duplicate"):
            hvd.init(process_sets=[copy_of_world, one])
        assert hvd.is_initialized()
        assert one.process_set_id is not None and copy_of_world.process_set_id is None
        hvd.shutdown()
        twice = [hvd.ProcessSet([0]), hvd.ProcessSet([0])]
        with pytest.raises(ValueError, match="entry number 1 is a duplicate"):
            hvd.init(process_sets=twice)
        hvd.shutdown()
    hvd.init()
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum) == size


def test_ranks_that_disagree():
    import os

    size, rank = hvd.size(), hvd.rank()
    hvd.shutdown()
    if size > 1:
        os.environ["HOROVOD_GLOO_TIMEOUT_SECONDS"] = "20"
        with pytest.raises(ValueError, match="Horovod initialization failed"):
            hvd.init(process_sets=[hvd.ProcessSet([0])] if rank == 0 else [])
        assert not hvd.is_initialized()
        with pytest.raises(ValueError, match="Horovod initialization failed"):
            hvd.init(process_sets=[hvd.ProcessSet([0] if rank == 0 else [1])])
        with pytest.raises(ValueError, match="Horovod initialization failed"):
            hvd.init(process_sets=[hvd.ProcessSet([99])])
    hvd.init()
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum) == size
