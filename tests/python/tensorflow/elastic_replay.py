# SPDX-License-Identifier: Apache-2.0
"""The data of elastic_training.py, and what NumPy makes of the same history."""

import numpy as np

FEATURES = 4
RATE, MOMENTUM = 2**-10, 0.5  # exact in single precision; slow, so that each step still matters


def sample(index):
    x = np.random.default_rng(index).normal(size=(1, FEATURES))
    return x, x.sum(axis=1, keepdims=True) / 2


def replay(history):
    """The weights after steps with these samples each."""
    weights, momentum = np.ones(FEATURES), np.zeros(FEATURES)
    for indices in history:
        gradient = np.zeros(FEATURES)
        for index in indices:
            x, y = sample(index)
            gradient += 2 * (x @ weights - y[:, 0]) * x[0] / len(indices)
        momentum = MOMENTUM * momentum - RATE * gradient
        weights = weights + momentum
    return weights
