#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Train a small convolutional network on images of handwritten digits, on any number of ranks.

    horovodrun -np 2 python pytorch_mnist.py
    python pytorch_mnist.py --single          one process, the same global batch

The images (1,797 of 8 x 8 pixels) come with scikit-learn, so nothing is downloaded. The global
batch stays the same whatever the number of ranks, so the loss curve and the accuracy do too.
What Horovod adds to a plain PyTorch script is marked with "hvd:".
"""

import argparse
import time

import horovod.torch as hvd
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=64, help="of all ranks together")
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--fp16-allreduce", action="store_true", help="send gradients as float16")
    parser.add_argument("--use-adasum", action="store_true", help="Adasum instead of averaging")
    parser.add_argument("--single", action="store_true", help="also train alone, and compare")
    return parser.parse_args()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1)
        self.fc1 = nn.Linear(32 * 4 * 4, 64)
        self.fc2 = nn.Linear(64, 10)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.fc2(F.relu(self.fc1(x.flatten(1))))


def load_data(seed):
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16.0
    labels = torch.tensor(digits.target)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    images, labels = images[order], labels[order]
    split = len(labels) * 4 // 5
    return (images[:split], labels[:split]), (images[split:], labels[split:])


def train(arguments, data, rank, size, wrap, report):
    """Returns the model and the loss after each epoch; wrap() makes the optimizer distributed."""
    images, labels = data
    torch.manual_seed(arguments.seed)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=arguments.lr, momentum=arguments.momentum)
    optimizer = wrap(model, optimizer)
    share = arguments.batch_size // size
    losses = []
    for epoch in range(arguments.epochs):
        start = time.perf_counter()
        generator = torch.Generator().manual_seed(arguments.seed + epoch)
        order = torch.randperm(len(labels), generator=generator)
        total, count = 0.0, 0
        for first in range(0, len(order) - arguments.batch_size + 1, arguments.batch_size):
            # hvd: every rank takes its own part of the global batch.
            batch = order[first + rank * share : first + (rank + 1) * share]
            optimizer.zero_grad()
            loss = F.cross_entropy(model(images[batch]), labels[batch])
            loss.backward()
            optimizer.step()
            total += loss.item()
            count += 1
        losses.append(report(epoch, total / count, time.perf_counter() - start))
    return model, losses


def accuracy(model, data):
    images, labels = data
    model.eval()
    with torch.no_grad():
        return (model(images).argmax(1) == labels).float().mean().item()


def main():
    arguments = parse_arguments()
    hvd.init()  # hvd: find the other ranks.
    torch.set_num_threads(1)
    train_data, test_data = load_data(arguments.seed)
    if arguments.batch_size % hvd.size() != 0:
        raise SystemExit(f"--batch-size must be a multiple of the {hvd.size()} ranks")

    def wrap(model, optimizer):
        # hvd: all ranks start from rank 0's weights, and average their gradients.
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        hvd.broadcast_optimizer_state(optimizer, root_rank=0)
        return hvd.DistributedOptimizer(
            optimizer,
            named_parameters=model.named_parameters(),
            compression=hvd.Compression.fp16 if arguments.fp16_allreduce else hvd.Compression.none,
            op=hvd.Adasum if arguments.use_adasum else hvd.Average,
        )

    def report(epoch, loss, seconds):
        # hvd: the loss of all ranks; only rank 0 prints.
        loss = hvd.allreduce(torch.tensor(loss), name="loss").item()
        if hvd.rank() == 0:
            print(
                f"epoch {epoch + 1:2d}/{arguments.epochs}  loss {loss:.4f}  {seconds:5.2f} s",
                flush=True,
            )
        return loss

    if hvd.rank() == 0:
        print(f"{hvd.size()} rank(s), {arguments.batch_size} images per step", flush=True)
    model, losses = train(arguments, train_data, hvd.rank(), hvd.size(), wrap, report)
    reached = accuracy(model, test_data)
    if hvd.rank() == 0:
        print(f"test accuracy on {hvd.size()} rank(s): {100 * reached:.2f} %", flush=True)
        if arguments.single:
            alone, alone_losses = train(
                arguments,
                train_data,
                0,
                1,
                lambda model, optimizer: optimizer,
                lambda e, loss, s: loss,
            )
            difference = max(abs(a - b) for a, b in zip(losses, alone_losses, strict=True))
            print(f"test accuracy alone:        {100 * accuracy(alone, test_data):.2f} %")
            print(f"largest difference of the loss curves: {difference:.2e}", flush=True)
    hvd.shutdown()


if __name__ == "__main__":
    main()
