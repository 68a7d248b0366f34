#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""DistributedDataParallel on Horovod's engine: nothing but the name of the backend is ours.

torchrun --nproc-per-node 2 examples/pytorch/pytorch_ddp.py
horovodrun -np 2 python examples/pytorch/pytorch_ddp.py
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main():
    dist.init_process_group("horovod")
    torch.manual_seed(dist.get_rank())
    model = DistributedDataParallel(nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    target = torch.linspace(-1, 1, 20)
    for step in range(100):
        x = torch.randn(32, 20)
        optimizer.zero_grad()
        loss = F.mse_loss(model(x).squeeze(1), x @ target)
        loss.backward()
        optimizer.step()
        if step % 20 == 19:
            mean = loss.detach()
            dist.all_reduce(mean, dist.ReduceOp.AVG)
            if dist.get_rank() == 0:
                print(f"step {step + 1}: loss {mean.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
