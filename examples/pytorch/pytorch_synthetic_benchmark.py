#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Images per second of a ResNet-50 trained on random data, on any number of ranks.

horovodrun -np 2 python pytorch_synthetic_benchmark.py --batch-size 4 --image-size 64
"""

import argparse
import time

import horovod.torch as hvd
import torch
import torch.nn.functional as F
from torch import nn


class Bottleneck(nn.Module):
    """1x1, 3x3, 1x1 convolutions around a short cut."""

    def __init__(self, width_in, width, stride):
        super().__init__()
        width_out = 4 * width
        self.body = nn.Sequential(
            nn.Conv2d(width_in, width, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, width_out, 1, bias=False),
            nn.BatchNorm2d(width_out),
        )
        self.short_cut = nn.Identity()
        if stride != 1 or width_in != width_out:
            self.short_cut = nn.Sequential(
                nn.Conv2d(width_in, width_out, 1, stride=stride, bias=False),
                nn.BatchNorm2d(width_out),
            )

    def forward(self, x):
        return F.relu(self.body(x) + self.short_cut(x))


def resnet50(classes=1000):
    """25.6 million parameters in 161 tensors."""
    layers = [
        nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, stride=2, padding=1),
    ]
    width_in = 64
    for width, blocks, first_stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for block in range(blocks):
            layers.append(Bottleneck(width_in, width, first_stride if block == 0 else 1))
            width_in = 4 * width
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width_in, classes)]
    return nn.Sequential(*layers)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--batch-size", type=int, default=8, help="images per rank and step")
    parser.add_argument("--image-size", type=int, default=96)
    parser.add_argument("--num-warmup-batches", type=int, default=2)
    parser.add_argument("--num-batches-per-iter", type=int, default=4)
    parser.add_argument("--num-iters", type=int, default=3)
    parser.add_argument("--fp16-allreduce", action="store_true", help="send gradients as float16")
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    hvd.init()
    torch.set_num_threads(1)
    torch.manual_seed(hvd.rank())
    model = resnet50()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01 * hvd.size())
    optimizer = hvd.DistributedOptimizer(
        optimizer,
        named_parameters=model.named_parameters(),
        compression=hvd.Compression.fp16 if arguments.fp16_allreduce else hvd.Compression.none,
    )
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    images = torch.randn(arguments.batch_size, 3, arguments.image_size, arguments.image_size)
    labels = torch.randint(0, 1000, (arguments.batch_size,))

    def step():
        optimizer.zero_grad()
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()

    def log(text):
        if hvd.rank() == 0:
            print(text, flush=True)

    log(f"ResNet-50, {sum(p.numel() for p in model.parameters())} parameters, {hvd.size()} rank(s)")
    for _ in range(arguments.num_warmup_batches):
        step()
    rates = []
    for i in range(arguments.num_iters):
        start = time.perf_counter()
        for _ in range(arguments.num_batches_per_iter):
            step()
        seconds = time.perf_counter() - start
        rates.append(arguments.batch_size * arguments.num_batches_per_iter / seconds)
        log(f"iteration {i + 1}: {rates[-1]:.1f} images/s per rank")
    mean = sum(rates) / len(rates)
    log(f"total on {hvd.size()} rank(s): {mean * hvd.size():.1f} images/s")
    hvd.shutdown()


if __name__ == "__main__":
    main()
