# SPDX-License-Identifier: Apache-2.0
"""Habits of scripts written for Horovod 0.28.1, beyond what each family of the API promises."""

import io
import pickle
import subprocess
import sys
import warnings

import horovod.torch as hvd
import pytest
import torch
from torch import nn

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()


def test_unnamed_ops_after_uneven_work():
    """Who has joined left out unnamed operations of the others; afterwards all count alike."""
    if SIZE == 1:
        pytest.skip("nobody to wait for")
    for _turn in range(2):
        if RANK > 0:
            for _step in range(3):
                hvd.allreduce(torch.ones(4))
            hvd.grouped_allreduce([torch.ones(4), torch.ones(2)])
            for call in (
                lambda: hvd.allgather(torch.ones(3)),
                lambda: hvd.broadcast(torch.ones(3), 1),
                lambda: hvd.alltoall(torch.ones(SIZE)),
                lambda: hvd.reducescatter(torch.ones(4)),
            ):
                with pytest.raises(hvd.HorovodInternalError, match="with Join at this time"):
                    call()
        last = hvd.join()
        assert hvd.allgather_object(last) == [last] * SIZE
        assert hvd.allreduce(torch.ones(4), op=hvd.Sum).eq(SIZE).all()
        assert hvd.allgather(torch.ones(2)).shape == (2 * SIZE,)
        assert hvd.broadcast(torch.full((2,), RANK), 0).eq(0).all()
        hvd.alltoall(torch.ones(SIZE))
        hvd.reducescatter(torch.ones(4))
        assert hvd.grouped_allreduce([torch.ones(2)], op=hvd.Sum)[0].eq(SIZE).all()


def test_gradients_after_broadcast_of_a_new_optimizer():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    model[0].weight.requires_grad_(False)
    before = [p.detach().clone() for p in model.parameters()]
    for is_wrapped in (False, True):
        model.zero_grad()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1)
        if is_wrapped:
            optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
        hvd.broadcast_optimizer_state(optimizer, root_rank=0)
        assert model[0].weight.grad is None
        assert model[1].weight.grad.eq(0).all()
        assert hvd.broadcast(model[1].weight.grad, 0).eq(0).all()
    for old, new in zip(before, model.parameters(), strict=True):
        assert torch.equal(old, new)
    embedding = nn.Embedding(4, 2, sparse=True)
    optimizer = torch.optim.SparseAdam(list(embedding.parameters()))
    hvd.broadcast_optimizer_state(optimizer, root_rank=0, model=embedding)
    assert embedding.weight.grad.is_sparse
    optimizer.step()


def test_what_is_no_tensor():
    for call in (
        lambda: hvd.allreduce(None),
        lambda: hvd.allreduce_(None),
        lambda: hvd.broadcast_(None, 0),
        lambda: hvd.allgather_async(None),
        lambda: hvd.broadcast_parameters({"a": None}, 0),
        lambda: hvd.broadcast_parameters({1: torch.ones(1)}, 0),
    ):
        with pytest.raises(AttributeError):
            call()
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum).eq(SIZE).all()


def test_nothing_warns():
    """Scripts run with -W error, and a sparse tensor of ours is nobody's mistake."""
    with torch.sparse.check_sparse_tensor_invariants(enable=False):
        sparse = torch.sparse_coo_tensor([[0, 0]], [1.0, 2.0], (3,))
    x = torch.ones(2, 2, requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = hvd.sparse_allreduce_async(sparse, name="quiet", op=hvd.Sum)()
        assert result.to_dense().tolist() == [3.0 * SIZE, 0.0, 0.0]
        (hvd.allgather(x).sum() + hvd.broadcast(x, 0).sum()).backward()
        sum(y.sum() for y in hvd.grouped_allgather([x, x])).backward()


def test_results_are_tensors_like_others():
    for result in (
        hvd.allgather(torch.ones(2)),
        hvd.reducescatter(torch.ones(2 * SIZE), op=hvd.Sum),
        hvd.alltoall(torch.ones(SIZE)),
        hvd.synchronize(hvd.grouped_allgather_async([torch.ones(2)]))[0],
    ):
        result.add_(1).mul_(2)
        assert pickle.loads(pickle.dumps(result)).equal(result)
        torch.save(result, io.BytesIO())
        result.unsqueeze_(0).requires_grad_().sum().backward()
        result.detach().share_memory_()


def test_leaves_are_reduced_in_place():
    p = nn.Parameter(torch.full((4, 4), RANK + 1.0))
    for tensor in (p, p.t()[::2]):
        with torch.no_grad():
            hvd.allreduce_(tensor, op=hvd.Max)
    hvd.broadcast_(p, 0)
    assert p.eq(SIZE).all() and p.is_leaf and p.requires_grad


def test_errors_are_short_and_keep_their_context():
    with pytest.raises(hvd.HorovodInternalError) as caught:
        hvd.reducescatter(torch.ones(2), op=hvd.Max)
    assert caught.value.__suppress_context__ and caught.value.__cause__ is None
    assert isinstance(caught.value.__context__, RuntimeError)


def test_without_numpy():
    """PyTorch works without NumPy, so do we."""
    if RANK > 0:
        return
    code = """
import sys, warnings
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "numpy":
            raise ModuleNotFoundError("No module named 'numpy'", name="numpy")
sys.meta_path.insert(0, Absent())
warnings.simplefilter("ignore")
import os
for name in list(os.environ):
    if name.startswith(("HOROVOD_", "OMPI_", "PMI")):
        del os.environ[name]
import torch
import horovod.torch as hvd
hvd.init()
assert hvd.broadcast_object({"a": 1}) == {"a": 1} and hvd.allgather_object(3) == [3]
assert hvd.allgather(torch.ones(2)).tolist() == [1, 1]
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=80)
