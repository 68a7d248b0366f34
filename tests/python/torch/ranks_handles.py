# SPDX-License-Identifier: Apache-2.0
"""Handles: several threads, forks, shutdown, waited for twice, never waited for."""

import gc
import os
import sys
import threading
import weakref

import horovod.torch as hvd
import numpy as np
import pytest
import torch
from horovod.common import handles
from horovod.common.arrays import Arrays
from horovod.common.exceptions import HorovodInternalError
from horovod.common.library import native
from horovod.torch import mpi_ops

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()


@pytest.fixture
def several():
    if SIZE == 1:
        pytest.skip("a rank alone waits for nobody")


def works(name=None):
    assert hvd.allreduce(torch.ones(3), op=hvd.Sum, name=name).eq(SIZE).all()


def start_lonely(name):
    """An operation that runs until rank 0 takes part: (handle, tensor) on the other ranks."""
    tensor = torch.ones(4)
    return hvd.allreduce_async_(tensor, name=name, op=hvd.Sum), tensor


def takes_part(name):
    """Rank 0 takes part in an operation after the others have started it, between two barriers."""
    if RANK == 0:
        hvd.barrier()
        start_lonely(name)
        hvd.barrier()
    return RANK == 0


def test_calls_of_one_operation():
    """What a gradient's way costs in Python: one call less than before handles were a class."""
    tensor = torch.ones(4)
    for _ in range(3):
        hvd.synchronize(hvd.allreduce_async_(tensor, name="count", op=hvd.Sum))
    calls = []
    sys.setprofile(lambda frame, event, arg: calls.append(event))
    handle = hvd.allreduce_async_(tensor, name="count", op=hvd.Sum)
    hvd.synchronize(handle)
    sys.setprofile(None)
    assert calls.count("call") <= 5
    assert calls.count("c_call") <= 4  # submit, pop, finish, setprofile


def test_two_threads_wait_for_one_handle(several):
    """One gets the result, the other None, and neither before the end."""
    if takes_part("one.handle"):
        return
    handle, tensor = start_lonely("one.handle")
    results, seen = [], []

    def wait():
        results.append(hvd.synchronize(handle))
        seen.append(tensor.clone())

    threads = [threading.Thread(target=wait) for _ in range(3)]
    for thread in threads:
        thread.start()
    hvd.barrier()
    for thread in threads:
        thread.join()
    hvd.barrier()
    assert sum(result is tensor for result in results) == 1
    assert sum(result is None for result in results) == 2
    assert all(value.eq(SIZE).all() for value in seen)
    with pytest.raises(ValueError, match="was not created or has been cleared"):
        hvd.poll(handle)


def test_poll_while_another_thread_waits(several):
    if takes_part("polled"):
        return
    handle, tensor = start_lonely("polled")
    thread = threading.Thread(target=hvd.synchronize, args=(handle,))
    thread.start()
    while handle in mpi_ops._handle_map:
        pass  # until the thread has taken it
    assert hvd.poll(handle) is False
    hvd.barrier()
    thread.join()
    hvd.barrier()
    assert tensor.eq(SIZE).all()


def test_many_threads_start_and_wait():
    failures = []

    def run(index):
        try:
            for i in range(50):
                handle = hvd.allreduce_async(
                    torch.full((3,), 1.0), name=f"mt.{index}.{i}", op=hvd.Sum
                )
                while i % 3 == 0 and not hvd.poll(handle):
                    pass
                assert hvd.synchronize(handle).eq(SIZE).all()
                assert hvd.synchronize(handle) is None
        except BaseException as error:  # noqa: BLE001 - the main thread raises it
            failures.append(error)

    threads = [threading.Thread(target=run, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_waiting_twice_and_for_nothing():
    handle = hvd.allreduce_async(torch.ones(2))
    assert hvd.synchronize(handle) is not None
    assert hvd.synchronize(handle) is None
    for nothing in (0, -1, 10**9, 1 << 80, None, "handle", 2.5):
        assert hvd.synchronize(nothing) is None
        with pytest.raises(ValueError, match="was not created or has been cleared"):
            hvd.poll(nothing)


def test_a_dropped_handle_keeps_its_tensor(several):
    """Nobody holds handle or tensor; the memory stays until the core is done with it."""
    if RANK != 0:
        reference = weakref.ref(start_lonely("dropped")[1])
        gc.collect()
        assert reference() is not None
    hvd.barrier()
    if RANK == 0:
        start_lonely("dropped")
    works()
    if RANK != 0:
        assert reference() is not None  # it can still be asked for by its number
    hvd.shutdown()
    gc.collect()
    if RANK != 0:
        assert reference() is None
    hvd.init()
    works()


def test_abandoned_operations_are_forgotten_when_they_end(several):
    table = mpi_ops._handles
    if takes_part("abandoned"):
        return
    handle, tensor = start_lonely("abandoned")
    reference = weakref.ref(tensor)
    del tensor
    table.abandon([handle])
    gc.collect()
    assert reference() is not None and len(table) == 0
    assert hvd.synchronize(handle) is None  # at once: it may never end
    hvd.barrier()
    hvd.barrier()
    while native.status(handle) == native.IN_PROGRESS:
        pass
    table.abandon([])
    gc.collect()
    assert reference() is None
    assert native.status(handle) == native.ERR_INVALID  # released


def test_the_name_of_an_abandoned_operation_can_be_used_again():
    """A name is taken until its operation has ended, not until somebody waits for it."""
    for _ in range(3):
        handle = hvd.allreduce_async(torch.ones(2), name="taken", op=hvd.Sum)
        hvd.barrier()
        mpi_ops._handles.abandon([handle])
        while native.status(handle) == native.IN_PROGRESS:
            pass
    works("taken")


def test_the_name_of_a_running_operation_is_taken(several):
    if takes_part("held"):
        return
    handle, _ = start_lonely("held")
    with pytest.raises(ValueError, match="same name") as caught:
        start_lonely("held")
    assert caught.value.status == native.ERR_DUPLICATE
    hvd.barrier()
    hvd.barrier()
    hvd.synchronize(handle)


def test_init_again_forgets_what_was_started(several):
    if RANK == 0:
        hvd.init()
    if takes_part("forgotten"):
        return
    handle, tensor = start_lonely("forgotten")
    hvd.init()
    assert hvd.synchronize(handle) is None
    hvd.barrier()
    hvd.barrier()
    while native.status(handle) == native.IN_PROGRESS:
        pass
    assert tensor.eq(SIZE).all()


def test_shutdown_while_threads_wait(several):
    """Each waiter gets an error, whether the shutdown comes from here or from another rank."""
    errors = []
    handle, _ = start_lonely(f"never.{RANK}")
    dropped, _ = start_lonely(f"never.either.{RANK}")

    def wait():
        try:
            hvd.synchronize(handle)
        except HorovodInternalError as error:
            errors.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    while handle in mpi_ops._handle_map:
        pass
    hvd.barrier()
    hvd.shutdown()
    thread.join()
    assert len(errors) == 1 and errors[0].status in (
        native.ERR_SHUTDOWN,
        native.ERR_NOT_INITIALIZED,
    )
    assert len(mpi_ops._handles) == 0
    assert hvd.poll(dropped)
    with pytest.raises(HorovodInternalError, match="Horovod has been shut down"):
        hvd.synchronize(dropped)
    assert hvd.synchronize(dropped) is None
    hvd.init()
    works()


def test_shutdown_by_another_package():
    """Whoever shuts down, the handles of all packages end with it."""
    handle = hvd.allreduce_async(torch.ones(2), name="shared.life")
    other = Arrays()
    hvd.barrier()
    other.same_shape(native.ALLREDUCE, [np.ones(2)], "other", native.SUM)
    mpi_ops._basics.shutdown()
    assert len(mpi_ops._handles) == 0 and len(other) == 0
    with pytest.raises((ValueError, HorovodInternalError)):
        hvd.synchronize(handle)
    mpi_ops._basics.init()
    assert hvd.synchronize(handle) is None  # a number of the former life
    works()


def test_fork_with_operations_in_flight(several):
    if takes_part("forked"):
        return
    handle, tensor = start_lonely("forked")
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            with pytest.raises(HorovodInternalError):
                hvd.synchronize(handle)
            assert hvd.synchronize(handle) is None
            mpi_ops._handles.abandon([handle])
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0
    hvd.barrier()
    assert hvd.synchronize(handle) is tensor
    hvd.barrier()
    assert tensor.eq(SIZE).all()


def test_status_travels():
    with pytest.raises(HorovodInternalError) as caught:
        if SIZE > 1:
            hvd.allreduce(torch.ones(2 + RANK), name="shapes", op=hvd.Sum)
        else:
            hvd.shutdown()
            hvd.allreduce(torch.ones(2))
    expected = native.ERR_MISMATCH if SIZE > 1 else native.ERR_NOT_INITIALIZED
    assert caught.value.status == expected
    hvd.init()
    with pytest.raises(ValueError) as caught:
        hvd.broadcast(torch.ones(2), SIZE)
    assert caught.value.status == native.ERR_INVALID
    assert HorovodInternalError("of somebody else").status is None


def test_arrays_leave_nothing_behind(several):
    """The first of several gathers fails on all ranks; the others end and are forgotten."""
    arrays = Arrays()
    values = [np.ones((2, 2 + RANK)), np.ones(2), np.ones(3)]
    with pytest.raises(HorovodInternalError):
        arrays.by_rows(native.ALLGATHER, values, "rows")
    assert len(arrays) == 0
    with pytest.raises(ValueError, match="complex64"):
        arrays.by_rows(native.ALLGATHER, [np.ones(2), np.ones(2, dtype=np.complex64)], "types")
    hvd.barrier()
    while any(native.status(h) == native.IN_PROGRESS for h in list(arrays._abandoned)):
        pass
    arrays.abandon([])
    assert not arrays._abandoned
    (result,), _ = arrays.by_rows(native.ALLGATHER, [np.full(2, RANK)], "rows")
    assert result.tolist() == [rank for rank in range(SIZE) for _ in range(2)]


def test_names():
    assert handles.op_name("allreduce.", "x") == "allreduce.x"
    assert handles.op_name("allreduce.", None) is None and handles.op_name("a.", "") is None
    assert handles.group_names("g.", "x", 2) == ["g.x_1of2", "g.x_2of2"]
    with pytest.raises(AttributeError, match="encode"):
        hvd.allreduce_async_(torch.ones(2), name=3)
