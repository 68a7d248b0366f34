#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A GAN: two models and two optimizers that take turns, each with names of its own.

horovodrun -np 2 python pytorch_gan.py
"""

import argparse

import horovod.torch as hvd
import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits as judge


def make(name, model, lr):
    """Prefixes keep the names of the two models apart."""
    optimizer = torch.optim.Adam(model.parameters(), lr=lr, betas=(0.5, 0.9))
    named = model.named_parameters(prefix=name)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    return hvd.DistributedOptimizer(optimizer, named_parameters=named)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--steps", type=int, default=400)
    steps = parser.parse_args().steps
    hvd.init()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    maker = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2))
    critic = nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
    maker_optimizer, critic_optimizer = make("maker", maker, 1e-3), make("critic", critic, 1e-3)
    torch.manual_seed(hvd.rank() + 100)  # other samples on each rank
    yes, no = torch.ones(64, 1), torch.zeros(64, 1)
    for step in range(steps):
        real = torch.randn(64, 2) * 0.3 + torch.tensor([2.0, -1.0])
        fake = maker(torch.randn(64, 4))
        critic_optimizer.zero_grad()
        critic_loss = judge(critic(real), yes) + judge(critic(fake.detach()), no)
        critic_loss.backward()
        critic_optimizer.step()
        maker_optimizer.zero_grad()
        # Gradients of the critic arise here, too; nobody steps with them.
        judge(critic(fake), yes).backward()
        maker_optimizer.step()
    with torch.no_grad():
        centre = hvd.allreduce(maker(torch.randn(1000, 4)).mean(0), name="centre")
    if hvd.rank() == 0:
        print(f"centre of what it makes: {centre[0]:.2f} {centre[1]:.2f} (data: 2.00 -1.00)")


if __name__ == "__main__":
    main()
