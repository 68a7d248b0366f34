# SPDX-License-Identifier: Apache-2.0
"""The model of torch_training.py, and what one process makes of the same history."""

import hashlib
import random

import torch
from torch import nn

SAMPLES = 97


def make_model(is_random=False):
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)).double()
    if not is_random:
        generator = torch.Generator().manual_seed(1)
        with torch.no_grad():
            for p in model.parameters():
                p.copy_(torch.randn(p.shape, generator=generator, dtype=p.dtype))
    return model, torch.optim.SGD(model.parameters(), lr=0.002, momentum=0.9)


def loss_of(model, index):
    generator = torch.Generator().manual_seed(index)
    sample = torch.randn((1, 4), generator=generator, dtype=torch.float64)
    return (model(sample) - sample.sum()).square().sum()


def hash_of(model, optimizer):
    """A number that tells weights and momenta apart."""
    digest = hashlib.sha256()
    for p in model.parameters():
        digest.update(p.detach().numpy().tobytes())
        momentum = optimizer.state.get(p, {}).get("momentum_buffer")
        digest.update(b"" if momentum is None else momentum.numpy().tobytes())
    return int.from_bytes(digest.digest()[:7], "little")


def replay(history):
    """The weights after steps with these samples each."""
    model, optimizer = make_model()
    for indices in history:
        optimizer.zero_grad()
        for index in indices:
            (loss_of(model, index) / len(indices)).backward()
        optimizer.step()
    return [p.detach() for p in model.parameters()]


def epochs_of(history):
    """The samples of each epoch in the order in which they were given out.

    An epoch ends with the step that gives out its last sample; that step may repeat others.
    """
    epochs, given, epoch = [], [], 0
    order = _order(epoch)
    for indices in history:
        given += indices
        if len(given) >= len(order):
            epochs.append(given)
            epoch, given = epoch + 1, []
            order = _order(epoch)
    return epochs, given


def _order(epoch, seed=3):
    order = list(range(SAMPLES))
    random.Random(seed + epoch).shuffle(order)
    return order


def check_samples(history):
    """Every sample of an epoch exactly once, in order; only its last step repeats any."""
    epochs, rest = epochs_of(history)
    for epoch, given in enumerate(epochs):
        assert given[:SAMPLES] == _order(epoch), f"epoch {epoch}: {given}"
    assert rest == []
