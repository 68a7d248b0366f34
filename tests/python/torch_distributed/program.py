# SPDX-License-Identifier: Apache-2.0
"""A program in which only the name of the backend is ours; its argument says what to try."""

import os
import sys
from datetime import timedelta

import torch
import torch.distributed as dist


def begin(seconds=120, backend="horovod"):
    dist.init_process_group(backend, timeout=timedelta(seconds=seconds))
    return dist.get_rank(), dist.get_world_size()


def check_sum():
    tensor = torch.ones(5)
    dist.all_reduce(tensor)
    assert tensor[0].item() == dist.get_world_size()


def plain():
    begin()
    check_sum()
    dist.destroy_process_group()


def devices():
    """A backend for each device."""
    begin(backend="cpu:horovod,cuda:gloo")
    check_sum()
    tensor = torch.ones(1)
    dist.all_reduce(tensor, group=dist.new_group())
    assert tensor.item() == dist.get_world_size()
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
    model(torch.ones(1, 2)).sum().backward()
    dist.destroy_process_group()


def again():
    """Three worlds, one after the other."""
    for _ in range(3):
        rank, size = begin()
        check_sum()
        if size > 1:
            group = dist.new_group([0, 1])
            if rank < 2:
                tensor = torch.ones(1)
                dist.all_reduce(tensor, group=group)
                assert tensor.item() == 2
        dist.destroy_process_group()
        assert not dist.is_initialized()


def early():
    """A rank that is done early does not take the world from the others."""
    rank, size = begin()
    check_sum()
    if rank > 0:
        for _ in range(50):
            got = torch.zeros(1)
            to = rank % (size - 1) + 1
            work = dist.irecv(got, (rank - 2) % (size - 1) + 1)
            dist.send(torch.tensor([float(rank)]), to)
            work.wait()
    dist.destroy_process_group()


def restart():
    """The first time rank 1 fails; torchrun starts all of them again."""
    rank, _ = begin()
    check_sum()
    if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and rank == 1:
        sys.exit(7)
    check_sum()
    print(f"rank {rank} restarted {os.environ['TORCHELASTIC_RESTART_COUNT']}", flush=True)
    dist.destroy_process_group()


def death():
    """Rank 1 dies; the others hear it, by an exception of torch's own."""
    rank, size = begin()
    check_sum()
    if rank == 1:  # dies when the others have their sums
        for other in range(size):
            if other != rank:
                dist.recv(torch.zeros(1), other)
        os._exit(0)
    dist.send(torch.zeros(1), 1)
    try:
        check_sum()
    except dist.DistNetworkError as error:
        assert "rank 1" in str(error), error
        print(f"rank {rank} heard of it", flush=True)
        os._exit(0)
    sys.exit("nothing happened")


def forgotten():
    """Neither destroy_process_group() nor anything else at the end."""
    begin()
    check_sum()


globals()[sys.argv[1]]()
print("ended well", flush=True)
