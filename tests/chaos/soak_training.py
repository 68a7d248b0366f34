# SPDX-License-Identifier: Apache-2.0
"""One worker of a soak, and what one process makes of the same history.

A linear regression by SGD with momentum in double precision. The samples of a step depend on the
step and the rank, so the loss of every later step depends on how many ranks each step had. Nothing
in the state grows with the steps: each worker appends `epoch step size loss` to its own file.
"""

import os
import time
from pathlib import Path

import numpy as np

FEATURES = 64
RATE, MOMENTUM = 0.002, 0.9
PAUSE_S = 0.01


def gradient_of(weights, step, rank):
    """The gradient of one rank's samples, with their loss as the last number."""
    chance = np.random.default_rng((step, rank))
    samples = chance.normal(size=(4, FEATURES))
    errors = samples @ (weights - 1.0) + chance.normal(size=4)
    return np.append(samples.T @ errors / len(samples), np.square(errors).mean())


def update(weights, momenta, average):
    """The weights, momenta and loss after a step whose gradients have this average."""
    momenta = MOMENTUM * momenta + average[:-1]
    return weights - RATE * momenta, momenta, average[-1]


def replay(sizes):
    """The loss of each step, where step i has sizes[i] ranks."""
    weights, momenta = np.zeros(FEATURES), np.zeros(FEATURES)
    for step, size in enumerate(sizes):
        average = sum(gradient_of(weights, step, rank) for rank in range(size)) / size
        weights, momenta, loss = update(weights, momenta, average)
        yield loss


def main():
    import horovod.numpy as hvd
    from horovod.common.elastic import ObjectState, broadcast_numbers, make_run
    from horovod.common.library import native

    folder = Path(os.environ["TEST_FOLDER"])
    hvd.init()
    zeros = np.zeros(FEATURES)
    state = ObjectState(hvd.broadcast_object, hvd.rank, step=0, weights=zeros, momenta=zeros)

    def reset():
        hvd.shutdown()
        hvd.init()

    @make_run(reset)
    def train(state):
        epoch, size = native.generation()["epoch"], hvd.size()
        while not broadcast_numbers([int((folder / "finish").exists())], "finish")[0]:
            time.sleep(PAUSE_S)
            mine = gradient_of(state.weights, state.step, hvd.rank())
            average = hvd.allreduce(mine, name="gradients", op=hvd.Average)
            state.weights, state.momenta, loss = update(state.weights, state.momenta, average)
            log.write(f"{epoch} {state.step} {size} {float(loss)!r}\n")
            state.step += 1
            state.commit()

    name = f"log.{os.environ['HOROVOD_WORKER']}.{os.getpid()}"
    with open(folder / name, "w", encoding="ascii", buffering=1) as log:
        train(state)
    hvd.shutdown()


if __name__ == "__main__":
    main()
