# SPDX-License-Identifier: Apache-2.0
"""What the ranks of test_control*.py do: `ranks_control.py CASE [ARGUMENT ...]` under mpirun.

Every rank prints `ok RANK SIZE` as its last words; whatever is wrong raises before that. Lines are
written in one piece, for the output of ranks is mixed.
"""

import os
import signal
import sys
import threading
import time

import numpy as np
from horovod.common import process_sets
from horovod.common.basics import HorovodBasics
from horovod.common.library import native
from horovod.common.process_sets import ProcessSet

hvd = HorovodBasics(__file__)


def say(*words):
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def allreduce_async(array, name, process_set=0):
    output = np.zeros_like(array)
    handle = native.submit(
        native.ALLREDUCE, name, process_set, native.SUM, 1.0, 1.0, 0, array, output, None, 0
    )
    return handle, output


def allreduce(array, name, process_set=0):
    handle, output = allreduce_async(array, name, process_set)
    native.finish(handle)
    return output


def check_sum(ranks, name, process_set=0, count=10):
    """Each of `ranks` gives its number plus one."""
    mine = np.full(count, hvd.rank() + 1, np.float32)
    want = sum(rank + 1 for rank in ranks)
    got = allreduce(mine, name, process_set)
    assert (got == want).all(), (got[:5], want)


def end():
    say("ok", hvd.rank(), hvd.size())


def expect(kind, function, *words):
    try:
        function()
    except kind as error:
        for word in words:
            assert word in str(error), (word, str(error))
        return
    raise AssertionError(f"no {kind.__name__}")


# ---- without mpi4py ----


def basics(want_threads):
    """Numbers, sums of many sizes, several lives."""
    assert hvd.mpi_built()
    assert not hvd.mpi_enabled()
    assert not hvd.gloo_enabled()
    for life in range(3):
        hvd.init()
        size, rank = hvd.size(), hvd.rank()
        assert size == int(os.environ["WANT_SIZE"])
        assert (hvd.local_rank(), hvd.local_size()) == (rank, size)
        assert (hvd.cross_rank(), hvd.cross_size()) == (0, 1)
        assert hvd.is_homogeneous()
        assert hvd.mpi_enabled()
        assert not hvd.gloo_enabled()
        assert hvd.mpi_threads_supported() == bool(int(want_threads))
        for count in (1, 1000, 300000):
            check_sum(range(size), f"sum.{count}", count=count)
        handles = [allreduce_async(np.full(100, rank, np.float64), f"many.{i}") for i in range(50)]
        time.sleep(0.01)
        for handle, output in handles:
            native.finish(handle)
            assert (output == sum(range(size))).all()
        if life < 2:
            hvd.shutdown()
    end()


def numbers():
    hvd.init()
    say("numbers", hvd.rank(), hvd.size(), int(hvd.mpi_enabled()), int(hvd.gloo_enabled()))
    check_sum(range(hvd.size()), "sum")
    end()


def places():
    hvd.init()
    for count in (1, 1000, 1000000):
        check_sum(range(hvd.size()), f"sum.{count}", count=count)
    stats = native.stats()
    ways = [way for way in ("shm", "net") if stats[f"{way}_bytes"]]
    place = (hvd.local_rank(), hvd.local_size(), hvd.cross_rank(), hvd.cross_size())
    say("place", hvd.rank(), *place, int(hvd.is_homogeneous()), *ways)
    end()


def init_fails():
    try:
        hvd.init()
    except ValueError as error:
        say("failed:", error)
        sys.exit(7)
    say("no error", hvd.size())


def ranks_given():
    """[0, 2] and [1, 3] train apart; a process that is not in its list is told so."""
    me = int(os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ["PMI_RANK"])
    expect(ValueError, lambda: hvd.init(comm=[(me + 1) % 4]), "not in the list", f"rank {me}")
    expect(ValueError, lambda: hvd.init(comm=[me, 9]), "[", "9")
    expect(ValueError, lambda: hvd.init(comm=[me, me]), "twice")
    hvd.init(comm=[me % 2, me % 2 + 2])
    assert (hvd.size(), hvd.rank()) == (2, me // 2)
    check_sum(range(2), "sum")
    hvd.shutdown()
    hvd.init(comm=[])
    assert (hvd.size(), hvd.rank()) == (4, me)
    check_sum(range(4), "sum")
    end()


def killed():
    """Rank 1 is killed while the others wait for it."""
    hvd.init()
    check_sum(range(hvd.size()), "before")
    if hvd.rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        check_sum(range(hvd.size()), "after")
    except RuntimeError as error:
        say("survivor:", error)
        time.sleep(60)  # mpirun ends us
    say("no error")


def stalls(late, caught):
    """Rank `late` does not come until the others have caught the error of the stall check."""
    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    check_sum(range(size), "before")
    while rank == int(late) and not os.path.exists(caught):
        time.sleep(0.01)
    try:
        check_sum(range(size), "after")
        say("no error")
    except RuntimeError as error:
        say("caught:", error)
    open(caught, "w").close()
    hvd.shutdown()
    say("ok", rank, size)


def leaves():
    """Rank 1 raises; the others must not wait for it for ever."""
    hvd.init()
    check_sum(range(hvd.size()), "before")
    if hvd.rank() == 1:
        raise SystemExit(9)
    try:
        check_sum(range(hvd.size()), "after")
    except RuntimeError as error:
        say("survivor:", error)
        sys.exit(1)
    say("no error")


# ---- with mpi4py ----


def mixed():
    """mpi4py's own calls and ours, from several threads at once."""
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    hvd.init()
    assert (hvd.rank(), hvd.size()) == (world.rank, world.size)
    assert hvd.mpi_threads_supported() == (MPI.Query_thread() == MPI.THREAD_MULTIPLE)
    total = sum(range(world.size))
    stop = threading.Event()
    rounds = 100
    comm = world.Dup()

    def add(where):
        result = np.zeros(1, np.int64)
        where.Allreduce(np.full(1, where.rank, np.int64), result)
        return result[0]

    def theirs():
        for _ in range(rounds):
            assert add(comm) == total
        stop.set()

    thread = threading.Thread(target=theirs)
    if MPI.Query_thread() == MPI.THREAD_MULTIPLE:
        thread.start()
    for i in range(rounds):
        assert add(world) == total
        check_sum(range(world.size), f"sum.{i}", count=1000)
    if thread.ident is not None:
        thread.join()
        assert stop.is_set()
    comm.Free()
    hvd.shutdown()
    assert world.allreduce(1) == world.size
    hvd.init()
    check_sum(range(world.size), "again")
    end()


def split():
    """Two halves train apart, at different paces, in reversed order of ranks."""
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    half = world.Split(world.rank % 2, -world.rank)
    hvd.init(comm=half)
    assert (hvd.rank(), hvd.size()) == (half.rank, half.size)
    assert process_sets.global_process_set.mpi_comm is half
    for i in range(20 * (1 + world.rank % 2)):
        check_sum(range(half.size), f"sum.{i}")
    hvd.shutdown()
    hvd.init(comm=world)
    assert (hvd.rank(), hvd.size()) == (world.rank, world.size)
    check_sum(range(world.size), "all")
    world.Barrier()
    hvd.shutdown()
    expect(ValueError, lambda: hvd.init(comm=MPI.COMM_NULL), "MPI_COMM_NULL")
    hvd.init(comm=MPI.COMM_SELF)
    assert (hvd.rank(), hvd.size()) == (0, 1)
    say("ok", world.rank, world.size)


def sets():
    """Process sets out of communicators: all that any rank gives, in order; then rank lists."""
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    process_sets._setup(hvd)
    pairs = world.Split(world.rank % 2, world.rank)  # [0, 2] here, [1, 3] there
    last = world.Split(0 if world.rank == 3 else MPI.UNDEFINED)  # MPI_COMM_NULL but on rank 3
    mine, other, listed = ProcessSet(pairs), ProcessSet([0, 1, 2]), ProcessSet([3])
    hvd.init(comm=world, process_sets=[mine, other, listed])
    table = hvd._get_process_set_ids_and_ranks()
    assert table == {0: [0, 1, 2, 3], 1: [0, 2], 2: [1, 3], 3: [0, 1, 2], 4: [3]}, table
    assert mine.process_set_id == 1 + world.rank % 2
    assert mine.ranks == [world.rank % 2, world.rank % 2 + 2]
    assert other.process_set_id == 3
    assert mine.included()
    assert mine.size() == 2
    assert mine.rank() == world.rank // 2
    check_sum(mine.ranks, "pair", mine.process_set_id)
    assert hvd._comm_process_set_id(pairs) == mine.process_set_id
    assert hvd._comm_process_set_id(world) == 0
    if world.rank == 3:
        assert hvd._comm_process_set_id(last) == 4
    expect(ValueError, lambda: hvd._comm_process_set_id(MPI.COMM_SELF)) if world.rank < 3 else None
    expect(NotImplementedError, lambda: process_sets.add_process_set(ProcessSet(pairs)))
    world.Barrier()
    hvd.shutdown()
    expect(NotImplementedError, lambda: hvd.init(process_sets=[ProcessSet(pairs)]), "MPI")
    expect(ValueError, lambda: hvd.init(comm=5))
    expect(ValueError, lambda: ProcessSet(5))
    hvd.init(comm=world, process_sets=[ProcessSet(pairs)])
    end()


def below_multiple():
    """The program has initialised MPI without threads; we still work, and say what that means."""
    import mpi4py

    mpi4py.rc.thread_level = "single"
    from mpi4py import MPI

    hvd.init()
    assert hvd.mpi_threads_supported() == (MPI.Query_thread() == MPI.THREAD_MULTIPLE)
    for i in range(20):
        check_sum(range(hvd.size()), f"sum.{i}")
    end()


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
