# SPDX-License-Identifier: Apache-2.0
"""What goes wrong, and how it is said. After every error the next call works."""

import re

import horovod.torch as hvd
import pytest
import torch
from horovod.torch import mpi_ops

NOT_INITIALIZED = "Horovod has not been initialized; use hvd.init()."


def test_before_init():
    x = torch.ones(2)
    for question in (hvd.rank, hvd.size, hvd.local_rank, hvd.local_size, hvd.is_homogeneous):
        with pytest.raises(ValueError, match=re.escape(NOT_INITIALIZED)):
            question()
    for call in (
        lambda: hvd.allreduce(x),
        lambda: hvd.allreduce_async_(x),
        lambda: hvd.grouped_allreduce([x]),
        lambda: hvd.allgather(x),
        lambda: hvd.broadcast(x, 0),
        lambda: hvd.alltoall(x, torch.tensor([2], dtype=torch.int32)),
        lambda: hvd.reducescatter(x),
        lambda: hvd.allgather_object(1),
        hvd.barrier,
        hvd.join,
    ):
        with pytest.raises(hvd.HorovodInternalError) as caught:
            call()
        assert str(caught.value) == NOT_INITIALIZED
        assert type(caught.value) is hvd.HorovodInternalError
        assert isinstance(caught.value.args[0], RuntimeError)
        assert isinstance(caught.value.__context__, RuntimeError)
        assert caught.value.__cause__ is None
    for call in (
        lambda: hvd.alltoall(x),
        lambda: hvd.alltoall(x, [2]),
        lambda: hvd.allreduce(x, op=hvd.Adasum),
        lambda: hvd.broadcast_object(1),
        lambda: hvd.elastic.ElasticSampler([1, 2]),
        lambda: hvd.DistributedOptimizer(torch.optim.SGD([torch.nn.Parameter(x)], lr=1)),
        hvd.global_process_set.size,
        hvd.global_process_set.included,
        lambda: hvd.start_timeline("file"),
        hvd.stop_timeline,
    ):
        with pytest.raises(ValueError, match=re.escape(NOT_INITIALIZED)):
            call()
    with pytest.raises(ValueError, match="is not supported"):
        hvd.allreduce(torch.ones(2, dtype=torch.complex64))
    assert not hvd.is_initialized()
    assert hvd.gloo_built() and not hvd.gloo_enabled() and hvd.nccl_built() == 0
    hvd.shutdown()


def test_init():
    hvd.init()
    assert hvd.is_initialized()
    assert hvd.gloo_enabled() != hvd.mpi_enabled()


def works():
    assert hvd.allreduce(torch.ones(3), op=hvd.Sum, name="works").eq(hvd.size()).all()


def test_arguments():
    x = torch.ones(2)
    with pytest.raises(ValueError, match="supersedes average"):
        hvd.allreduce(x, average=True, op=hvd.Sum)
    with pytest.warns(DeprecationWarning, match="Parameter `average` has been replaced with `op`"):
        hvd.allreduce(x, average=True)
    with pytest.raises(ValueError, match="Tensor type torch.ComplexFloatTensor is not supported"):
        hvd.allreduce(torch.ones(2, dtype=torch.complex64))
    sparse = torch.eye(2).to_sparse()
    with pytest.raises(ValueError, match="Tensor type torch.sparse.FloatTensor is not supported"):
        hvd.allreduce(sparse)
    with pytest.raises(IndexError, match="tuple index out of range"):
        hvd.allgather(torch.tensor(1.0))
    with pytest.raises(IndexError, match="tuple index out of range"):
        hvd.grouped_allgather([torch.tensor(1.0)])
    with pytest.raises(ValueError, match="Reducescatter does not support scalar inputs"):
        hvd.reducescatter(torch.tensor(1.0))
    with pytest.raises(ValueError):
        hvd.alltoall(torch.tensor(1.0))
    with pytest.raises(ValueError, match=re.escape("not enough values to unpack (expected 2")):
        hvd.grouped_allreduce([])
    for call in (
        hvd.grouped_allreduce_async,
        hvd.grouped_allreduce_,
        hvd.grouped_allgather,
        hvd.grouped_reducescatter,
    ):
        with pytest.raises(IndexError):
            call([])
    with pytest.raises(TypeError):
        hvd.reducescatter(x, op=None)
    with pytest.raises(TypeError):
        hvd.broadcast(x, 0.0)
    with pytest.raises(TypeError):
        hvd.join(None)
    with pytest.raises(AttributeError):
        hvd.allreduce(x, name=3)
    with pytest.raises(AttributeError):
        hvd.allreduce([1.0])
    with pytest.raises(AttributeError):
        hvd.allreduce(x, process_set=None)
    with pytest.raises(ValueError, match="has not been registered"):
        hvd.allreduce(x, process_set=hvd.ProcessSet([0]))
    works()


def test_allgather_of_a_scalar():
    with pytest.raises(hvd.HorovodInternalError, match="rank-zero tensor"):
        hvd.synchronize(hvd.allgather_async(torch.tensor(1.0), name="scalar"))
    works()


def test_reductions_that_do_not_exist():
    x = torch.ones(2)
    with pytest.raises(hvd.HorovodInternalError, match="only supports AVERAGE and SUM"):
        hvd.reducescatter(x, op=hvd.Max)
    with pytest.raises(hvd.HorovodInternalError, match="Reduction op type not supported"):
        hvd.allreduce(x, op=77)
    works()


@pytest.mark.parametrize(
    ("splits", "text"),
    [
        (lambda n: [100] * n, "Sum of splits entries is greater than the first dimension"),
        (lambda n: [1] * (n + 1), "Number of entries in splits does not equal number of workers"),
        (lambda n: torch.ones(n, 1, dtype=torch.int32), "alltoall expects a 1D splits tensor"),
        (lambda n: torch.ones(n), "alltoall expects splits to contain 32-bit integer elements"),
        (lambda n: [-1] + [1] * (n - 1), "negative"),
    ],
)
def test_splits(splits, text):
    with pytest.raises(ValueError, match=text):
        hvd.alltoall(torch.ones(2 * hvd.size()), splits(hvd.size()))
    works()


def test_equal_splits():
    if hvd.size() > 1:
        with pytest.raises(ValueError, match="splits not provided, but first dimension"):
            hvd.alltoall(torch.ones(2 * hvd.size() + 1))
    works()


@pytest.mark.parametrize("root", [-1, 99])
def test_broadcast_root(root):
    text = f"broadcast received invalid root rank {root} for provided process set"
    with pytest.raises(ValueError, match=text):
        hvd.broadcast(torch.ones(2), root)
    works()


def mismatch(call, text):
    with pytest.raises(hvd.HorovodInternalError, match=text):
        call()
    works()


@pytest.fixture
def several():
    if hvd.size() == 1:
        pytest.skip("one rank agrees with itself")


def test_mismatched_shape(several):
    rank = hvd.rank()
    mismatch(
        lambda: hvd.allreduce(torch.ones(2 + rank), name="shape"),
        "Mismatched ALLREDUCE tensor shapes: One rank sent a tensor of shape",
    )
    mismatch(
        lambda: hvd.allreduce(torch.ones([6] if rank else [2, 3]), name="ndim"),
        "Mismatched ALLREDUCE tensor shapes",
    )
    mismatch(
        lambda: hvd.allgather(torch.ones([4] if rank else [4, 4]), name="gather.ndim"),
        "Mismatched ALLGATHER tensor shapes",
    )
    mismatch(
        lambda: hvd.allgather(torch.ones(2, 3 + rank), name="gather.dim"),
        "Mismatched ALLGATHER tensor shapes",
    )
    mismatch(
        lambda: hvd.broadcast(torch.ones(2 + rank), 0, name="bc.shape"),
        "Mismatched BROADCAST tensor shapes",
    )
    mismatch(
        lambda: hvd.reducescatter(torch.ones(2 + rank), name="rs.shape"),
        "Mismatched REDUCESCATTER tensor shapes",
    )


def test_mismatched_dtype(several):
    dtype = torch.int32 if hvd.rank() else torch.float32
    for name, call in (("a", hvd.allreduce), ("b", hvd.allgather)):
        mismatch(
            lambda call=call, name=name: call(torch.ones(4, dtype=dtype), name=f"dtype.{name}"),
            "Mismatched data types: One rank had type (float32|int32), "
            "but another rank had type (float32|int32)",
        )


def test_mismatch_says_which_rank_sent_what(several):
    """One rank is the exception, whichever request comes first; all ranks get the same text."""
    last = hvd.size() - 1
    shape = [4, 5] if hvd.rank() == last else [4, 4]
    with pytest.raises(hvd.HorovodInternalError) as caught:
        hvd.allreduce(torch.ones(shape), name="which")
    text = str(caught.value)
    if hvd.size() == 2:
        assert re.search(
            r"allreduce\.which; (rank 0: \[4, 4\]; rank 1: \[4, 5\]|rank 1: .*)\)$", text
        )
    else:
        assert f"rank {last}: [4, 5]" in text
        assert re.search(
            rf"All other ranks match rank [^{last}]\.|do not match rank {last}: 0, 1.*\.", text
        )
    assert len(set(hvd.allgather_object(text))) == 1


def test_mismatched_op(several):
    op = hvd.Sum if hvd.rank() else hvd.Max
    mismatch(
        lambda: hvd.allreduce(torch.ones(4), name="op", op=op),
        "Mismatched reduction operation: One rank sent reduction op (Sum|Max), but another rank "
        r"sent reduction op (Sum|Max)\. \(tensor allreduce\.op; rank \d+: (Sum|Max); ",
    )
    mismatch(
        lambda: hvd.allreduce(torch.ones(4), name="scale", prescale_factor=1.0 + hvd.rank()),
        "Mismatched prescale and/or postscale factors: One rank sent factors",
    )


def test_mismatched_root(several):
    root = 0 if hvd.rank() else 1
    mismatch(
        lambda: hvd.broadcast(torch.ones(4), root, name="root"),
        "Mismatched BROADCAST root ranks: One rank specified root rank",
    )


def test_group_reports_its_first_error(several):
    tensors = [torch.ones(2 + hvd.rank()), torch.ones(2)]
    mismatch(
        lambda: hvd.grouped_allreduce(tensors, name="group.error"),
        "Mismatched ALLREDUCE tensor shapes",
    )


def test_mismatch_of_a_cached_name(several):
    for _ in range(3):
        hvd.allreduce(torch.ones(4), name="cached")
    mismatch(
        lambda: hvd.allreduce(torch.ones(4 + hvd.rank()), name="cached"),
        "Mismatched ALLREDUCE tensor shapes",
    )
    hvd.allreduce(torch.ones(4), name="cached")


def test_mismatched_names_over_steps(several):
    """What each rank calls differs; only the common ones complete, in any order."""
    order = [0, 1, 2, 3] if hvd.rank() % 2 else [3, 2, 1, 0]
    handles = {i: hvd.allreduce_async(torch.full((3,), float(i)), name=f"o.{i}") for i in order}
    for i, handle in handles.items():
        assert hvd.synchronize(handle).eq(i).all()


def test_duplicate_name():
    x, y = torch.ones(1000), torch.ones(1000)
    text = (
        "Requested to allreduce, allgather, or broadcast a tensor with the same name as another "
        "tensor that is currently being processed.  If you want to request another tensor, use a "
        "different tensor name."
    )

    def start(name):
        if name == "twice":
            return hvd.allreduce_async(x, name=name)
        return hvd.grouped_allreduce_async([x, y], name=name)

    for name in ("twice", "group.twice"):
        if hvd.size() == 1:
            # Alone it may be over, and its name free, before we ask again: not every time.
            assert any(is_refused(start, name, text) for _ in range(100))
            continue
        # In flight for sure: the others begin only when rank 0 has been refused.
        handle = start(name) if hvd.rank() == 0 else None
        if hvd.rank() == 0:
            with pytest.raises(ValueError, match=re.escape(text)):
                start(name)
        hvd.broadcast_object(None, 0)
        hvd.synchronize(handle if handle is not None else start(name))
    works()


def is_refused(start, name, text):
    handle = start(name)
    try:
        hvd.synchronize(start(name))
    except ValueError as error:
        assert str(error).startswith(text)
        return True
    finally:
        hvd.synchronize(handle)
    return False


def test_failed_calls_use_up_no_automatic_name():
    if hvd.rank() == 0:
        for _ in range(3):
            with pytest.raises(ValueError):
                hvd.broadcast(torch.ones(2), -1)
            with pytest.raises(ValueError):
                hvd.alltoall(torch.ones(2), [99] * hvd.size())
    assert hvd.broadcast(torch.ones(2), 0).eq(1).all()
    hvd.alltoall(torch.ones(hvd.size()))
    works()


def test_handles():
    handle = hvd.allreduce_async(torch.ones(3))
    assert isinstance(handle, int) and handle > 0
    while not hvd.poll(handle):
        pass
    assert hvd.poll(handle)
    assert hvd.synchronize(handle).eq(1).all()
    assert hvd.synchronize(handle) is None
    with pytest.raises(ValueError, match=f"Handle {handle} was not created or has been cleared"):
        hvd.poll(handle)
    assert hvd.synchronize(10**12) is None
    assert len(mpi_ops._handles) == 0


def test_poll_is_not_always_true():
    seen = set()
    for i in range(200):
        handle = hvd.allreduce_async(torch.ones(4), name=f"poll.{i}")
        seen.add(hvd.poll(handle))
        hvd.synchronize(handle)
    assert False in seen


def test_joined_ranks_and_other_collectives(several):
    if hvd.rank() == 0:
        assert hvd.join() >= 0
    else:
        for call, text in (
            (lambda: hvd.broadcast(torch.ones(2), 1, name="j.b"), "Broadcast is not supported"),
            (lambda: hvd.allgather(torch.ones(2), name="j.g"), "Allgather is not supported"),
            (lambda: hvd.reducescatter(torch.ones(2), name="j.r"), "Reducescatter is not supp"),
            (lambda: hvd.alltoall(torch.ones(hvd.size()), name="j.a"), "Alltoall is not supported"),
        ):
            with pytest.raises(hvd.HorovodInternalError, match=text + ".*with Join at this time"):
                call()
        hvd.join()
    works()


def test_adasum_limits():
    if hvd.size() & (hvd.size() - 1):
        with pytest.raises(NotImplementedError, match="non-power of 2 ranks"):
            hvd.allreduce(torch.ones(2), op=hvd.Adasum)
    works()
