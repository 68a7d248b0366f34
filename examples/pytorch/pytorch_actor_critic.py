#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reinforcement learning: an actor and a critic with an optimizer each; episodes differ in length.

    horovodrun -np 2 python pytorch_actor_critic.py

Each rank plays its own episodes in a corridor of nine places (the goal is at the right end) and
learns from all. Ranks run different numbers of backward passes between two steps: a gradient is
only ever combined with those of the same step.
"""

import argparse

import horovod.torch as hvd
import torch
from torch import nn
from torch.distributions import Categorical

PLACES, LIMIT = 9, 40


def seen(place):
    return nn.functional.one_hot(torch.tensor(place), PLACES).float()


def play(actor, critic, generator):
    """One episode: the losses of both, and its length."""
    place, actor_loss, critic_loss, steps = PLACES // 2, 0.0, 0.0, 0
    while place != PLACES - 1 and steps < LIMIT:
        policy = Categorical(logits=actor(seen(place)))
        action = torch.multinomial(policy.probs, 1, generator=generator).squeeze()
        value = critic(seen(place))
        place = max(0, min(PLACES - 1, place + (1 if action.item() else -1)))
        steps += 1
        is_over = place == PLACES - 1
        target = 1.0 if is_over else -0.02 + 0.95 * critic(seen(place)).detach()
        advantage = target - value
        actor_loss = actor_loss - policy.log_prob(action) * advantage.detach()
        critic_loss = critic_loss + advantage.pow(2)
    return actor_loss.sum(), critic_loss.sum(), steps


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--updates", type=int, default=40)
    updates = parser.parse_args().updates
    hvd.init()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    actor, critic = nn.Linear(PLACES, 2), nn.Linear(PLACES, 1)
    optimizers = []
    for name, model in (("actor", actor), ("critic", critic)):
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
        named = model.named_parameters(prefix=name)
        optimizers.append(hvd.DistributedOptimizer(optimizer, named_parameters=named))
    generator = torch.Generator().manual_seed(hvd.rank())
    lengths = []
    for update in range(updates):
        for optimizer in optimizers:
            optimizer.zero_grad()
        # As many episodes as the rank feels like: one or two backward passes.
        for _ in range(1 + (update + hvd.rank()) % 2):
            actor_loss, critic_loss, steps = play(actor, critic, generator)
            actor_loss.backward()
            critic_loss.backward()
            lengths.append(steps)
        for optimizer in optimizers:
            optimizer.step()
    means = [sum(part) / len(part) for part in (lengths[:10], lengths[-10:])]
    first, last = hvd.allreduce(torch.tensor(means), name="lengths").tolist()
    if hvd.rank() == 0:
        print(f"steps to the goal: {first:.1f} at first, {last:.1f} in the end", flush=True)


if __name__ == "__main__":
    main()
