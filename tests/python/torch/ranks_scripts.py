# SPDX-License-Identifier: Apache-2.0
"""Habits of scripts written for Horovod 0.28.1, beyond what each family of the API promises."""

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
