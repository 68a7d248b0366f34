#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Train a small network to read handwritten-like digits, on any number of ranks.

    horovodrun -np 2 python jax_digits.py

The digits are drawn here: seven-segment figures of 8 x 8 points, shifted and with noise, so nothing
is downloaded. Uses Optax and plain JAX; the compiled step holds the allreduce of all gradients.
"""

import argparse

import horovod.jax as hvd
import jax
import jax.numpy as jnp
import numpy as np
import optax

# Segments of the ten digits: top, upper left, upper right, middle, lower left, lower right, bottom.
SEGMENTS = ["1110111", "0010010", "1011101", "1011011", "0111010", "1101011", "1101111", "1010010"]
SEGMENTS += ["1111111", "1111011"]
PLACES = [
    (slice(1, 2), slice(2, 6)),
    (slice(1, 4), slice(2, 3)),
    (slice(1, 4), slice(5, 6)),
    (slice(3, 4), slice(2, 6)),
    (slice(3, 7), slice(2, 3)),
    (slice(3, 7), slice(5, 6)),
    (slice(6, 7), slice(2, 6)),
]


def draw_digits(count, seed):
    """(images of 64 numbers, labels)"""
    random = np.random.RandomState(seed)
    labels = random.randint(0, 10, count)
    images = np.zeros((count, 8, 8), np.float32)
    for image, label in zip(images, labels):
        for place, is_lit in zip(PLACES, SEGMENTS[label]):
            image[place] = float(is_lit)
        image[:] = np.roll(image, random.randint(-1, 2, 2), (0, 1))
    return images.reshape(count, 64) + random.normal(0, 0.3, (count, 64)), labels


def make_params(key, sizes=(64, 64, 10)):
    keys = jax.random.split(key, len(sizes))
    return [
        {"w": jax.random.normal(k, (m, n)) / np.sqrt(m), "b": jnp.zeros(n)}
        for k, m, n in zip(keys, sizes, sizes[1:])
    ]


def predict(params, x):
    for layer in params[:-1]:
        x = jax.nn.relu(x @ layer["w"] + layer["b"])
    return x @ params[-1]["w"] + params[-1]["b"]


def loss_of(params, x, y):
    return optax.softmax_cross_entropy_with_integer_labels(predict(params, x), y).mean()


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=32, help="images per rank")
    parser.add_argument("--lr", type=float, default=5e-3)
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    hvd.init()
    images, labels = draw_digits(4096, seed=0)
    images, labels = images[hvd.rank() :: hvd.size()], labels[hvd.rank() :: hvd.size()]
    test_images, test_labels = draw_digits(512, seed=1)

    optimizer = hvd.DistributedOptimizer(optax.adam(arguments.lr))
    params = hvd.broadcast_parameters(make_params(jax.random.PRNGKey(hvd.rank())), root_rank=0)
    state = optimizer.init(params)

    @jax.jit
    def step(params, state, x, y):
        loss, grads = jax.value_and_grad(loss_of)(params, x, y)
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state, hvd.allreduce(loss)

    batch = arguments.batch_size
    for epoch in range(arguments.epochs):
        order = np.random.RandomState(epoch).permutation(len(images))
        for start in range(0, len(order) - batch + 1, batch):
            rows = order[start : start + batch]
            params, state, loss = step(params, state, images[rows], labels[rows])
        accuracy = (predict(params, test_images).argmax(-1) == test_labels).mean()
        if hvd.rank() == 0:
            print(f"epoch {epoch}  loss {loss:.4f}  accuracy {accuracy:.3f}", flush=True)
    hvd.shutdown()


if __name__ == "__main__":
    main()
