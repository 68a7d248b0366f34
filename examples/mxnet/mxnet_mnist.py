# SPDX-License-Identifier: Apache-2.0
"""A small convolutional network for images of digits, trained with Gluon on any number of ranks.

horovodrun -np 2 python mxnet_mnist.py

The images are generated (nothing is downloaded). What Horovod adds are the lines marked with (1) to
(5).
"""

import argparse

import horovod.mxnet as hvd
import mxnet as mx
import numpy as np
from mxnet import autograd, gluon

SEGMENTS = ["abcdef", "bc", "abged", "abgcd", "fgbc", "afgcd", "afgedc", "abc", "abcdefg", "abcdfg"]
BARS = {
    "a": (slice(2, 4), slice(4, 12)),
    "b": (slice(3, 8), slice(11, 13)),
    "c": (slice(8, 14), slice(11, 13)),
    "d": (slice(13, 15), slice(4, 12)),
    "e": (slice(8, 14), slice(3, 5)),
    "f": (slice(3, 8), slice(3, 5)),
    "g": (slice(7, 9), slice(4, 12)),
}


def make_digits(count, seed):
    """Digits of seven segments, moved a little and with noise: (images, labels)."""
    random = np.random.RandomState(seed)
    labels = random.randint(0, 10, count)
    images = 0.3 * random.rand(count, 1, 16, 16)
    for image, label in zip(images, labels):
        for bar in SEGMENTS[label]:
            image[0][BARS[bar]] += 0.7
        image[0] = np.roll(image[0], random.randint(-1, 2, 2), axis=(0, 1))
    return images.astype("float32"), labels.astype("float32")


def make_net():
    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Conv2D(8, 3, activation="relu"), gluon.nn.MaxPool2D())
    net.add(gluon.nn.Flatten(), gluon.nn.Dense(32, activation="relu"), gluon.nn.Dense(10))
    net.hybridize()
    return net


def accuracy(net, images, labels):
    guesses = net(mx.nd.array(images)).argmax(axis=1).asnumpy()
    right = mx.nd.array([(guesses == labels).mean()])
    return hvd.allreduce(right, name="accuracy").asscalar()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=32, help="images per rank and step")
    parser.add_argument("--images", type=int, default=2048, help="images of all ranks")
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--fp16", action="store_true", help="send gradients as float16")
    arguments = parser.parse_args()

    hvd.init()  # (1)
    mx.random.seed(hvd.rank())
    images, labels = make_digits(arguments.images, seed=1)
    mine = slice(hvd.rank(), None, hvd.size())  # (2) each rank has its share of the data
    images, labels = images[mine], labels[mine]
    test = make_digits(500, seed=2)

    net = make_net()
    net.initialize(mx.init.Xavier())
    # (3) All start from rank 0's weights, also those whose shapes the first batch tells.
    hvd.broadcast_parameters(net.collect_params(), root_rank=0)
    # (4) Gradients are averaged over the ranks before each update.
    trainer = hvd.DistributedTrainer(
        net.collect_params(),
        "sgd",
        {"learning_rate": arguments.lr * hvd.size(), "momentum": 0.9},
        compression=hvd.Compression.fp16 if arguments.fp16 else hvd.Compression.none,
    )
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    steps = arguments.images // hvd.size() // arguments.batch_size
    for epoch in range(arguments.epochs):
        order = np.random.RandomState(epoch).permutation(len(images))
        for step in range(steps):
            rows = order[step * arguments.batch_size : (step + 1) * arguments.batch_size]
            with autograd.record():
                loss = loss_of(net(mx.nd.array(images[rows])), mx.nd.array(labels[rows]))
            loss.backward()
            trainer.step(arguments.batch_size)
        right = accuracy(net, *test)
        if hvd.rank() == 0:  # (5) one rank speaks
            print(f"epoch {epoch + 1}: accuracy {right:.3f}", flush=True)
    if hvd.rank() == 0:
        assert right > 0.9, "it should have learnt the digits"


if __name__ == "__main__":
    main()
