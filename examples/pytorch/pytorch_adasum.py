#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Adasum against averaging, with the learning rate of one process; 2, 4, 8, ... ranks.

horovodrun -np 2 python pytorch_adasum.py
"""

import argparse

import horovod.torch as hvd
import torch
from torch import nn


def train(op, steps):
    torch.manual_seed(1)
    truth = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 1))
    model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)  # not multiplied by hvd.size()
    optimizer = hvd.DistributedOptimizer(
        optimizer, named_parameters=model.named_parameters(prefix=f"{op}"), op=op
    )
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    generator = torch.Generator().manual_seed(hvd.rank())
    for _ in range(steps):
        x = torch.randn(16, 16, generator=generator)
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), truth(x).detach()).backward()
        optimizer.step()
    x = torch.randn(1024, 16, generator=torch.Generator().manual_seed(99))
    with torch.no_grad():
        return nn.functional.mse_loss(model(x), truth(x)).item()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--steps", type=int, default=200)
    steps = parser.parse_args().steps
    hvd.init()
    losses = {
        name: train(op, steps) for name, op in (("average", hvd.Average), ("adasum", hvd.Adasum))
    }
    if hvd.rank() == 0:
        for name, loss in losses.items():
            print(f"{name:8} loss {loss:.4f} after {steps} steps", flush=True)


if __name__ == "__main__":
    main()
