#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Train a residual network the way ImageNet is trained, on any number of ranks.

    horovodrun -np 2 python pytorch_imagenet.py --epochs 4 --checkpoint run.pt
    horovodrun -np 2 python pytorch_imagenet.py --epochs 8 --checkpoint run.pt     goes on at 5

DataLoader with worker processes, a sampler that shards, warm-up of the learning rate, mixed
precision in bfloat16, checkpoints that rank 0 writes and all ranks resume from. The images are
generated, so nothing is downloaded: replace Images by torchvision.datasets.ImageFolder.
"""

import argparse
import os

import horovod.torch as hvd
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

CLASSES = 8


class Images(Dataset):
    """Stripes of a direction and width that belong to a class, with noise."""

    def __init__(self, count, pixels, seed):
        self.count, self.pixels, self.seed = count, pixels, seed

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + i)
        label = i % CLASSES
        angle = torch.tensor(label % 4 * torch.pi / 4)
        row, column = torch.meshgrid(*2 * [torch.arange(self.pixels) / 2.0], indexing="ij")
        waves = torch.sin((row * angle.sin() + column * angle.cos()) * (1 + label // 4))
        return waves + 0.5 * torch.randn(3, *waves.shape, generator=generator), label


class Block(nn.Module):
    def __init__(self, width_in, width, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(width_in, width, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(width), nn.BatchNorm2d(width)
        self.short = nn.Conv2d(width_in, width, 1, stride, bias=False)

    def forward(self, x):
        y = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        return F.relu(y + self.short(x))


def make_model(width):
    widths = [3, width, 2 * width, 4 * width]
    blocks = [Block(a, b, 1 + (i > 0)) for i, (a, b) in enumerate(zip(widths, widths[1:]))]
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], CLASSES)]
    return nn.Sequential(*blocks, *head)


def rate(epoch, step, steps, arguments):
    """Grows from that of one rank to that of all over the first epochs, then falls as a cosine."""
    done = epoch + step / steps
    if done < arguments.warmup_epochs:
        return arguments.lr * (1 + (hvd.size() - 1) * done / arguments.warmup_epochs)
    left = (done - arguments.warmup_epochs) / max(arguments.epochs - arguments.warmup_epochs, 1)
    return arguments.lr * hvd.size() * 0.5 * (1 + torch.cos(torch.tensor(left * torch.pi)).item())


def save(path, epoch, model, optimizer):
    """One rank writes; a crash in between leaves the old file."""
    if path and hvd.rank() == 0:
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
        torch.save(state, path + ".part")
        os.replace(path + ".part", path)


def resume(path, model, optimizer):
    """Rank 0 reads, all get it. Returns the epoch to begin with."""
    first = 0
    if path and hvd.rank() == 0 and os.path.exists(path):
        state = torch.load(path, map_location="cpu")
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first = state["epoch"] + 1
    first = hvd.broadcast_object(first, root_rank=0)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    return first


def train_epoch(epoch, model, optimizer, loader, arguments):
    model.train()
    total = torch.zeros(2)
    for step, (x, y) in enumerate(loader):
        for group in optimizer.param_groups:
            group["lr"] = rate(epoch, step, len(loader), arguments)
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=arguments.mixed_precision):
            loss = F.cross_entropy(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        total += torch.tensor([loss.item() * len(y), len(y)])
    total = hvd.allreduce(total, name="loss", op=hvd.Sum)
    return (total[0] / total[1]).item()


def accuracy(model, loader):
    """Of all ranks: each counts in its share."""
    model.eval()
    counts = torch.zeros(2)
    with torch.no_grad():
        for x, y in loader:
            counts += torch.tensor([(model(x).argmax(1) == y).sum().item(), len(y)])
    counts = hvd.allreduce(counts, name="accuracy", op=hvd.Sum)
    return (counts[0] / counts[1]).item()


def make_loader(data, arguments, is_training):
    sampler = DistributedSampler(data, hvd.size(), hvd.rank(), shuffle=is_training)
    workers = arguments.workers if is_training else 0
    return sampler, DataLoader(data, arguments.batch_size, sampler=sampler, num_workers=workers)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=16, help="of one rank")
    parser.add_argument("--images", type=int, default=512)
    parser.add_argument("--pixels", type=int, default=32)
    parser.add_argument("--width", type=int, default=8, help="channels of the first block")
    parser.add_argument("--workers", type=int, default=1, help="of each DataLoader")
    parser.add_argument("--lr", type=float, default=0.05, help="of one rank")
    parser.add_argument("--warmup-epochs", type=float, default=1)
    parser.add_argument("--checkpoint", help="file to write after each epoch, and to resume from")
    parser.add_argument("--mixed-precision", action="store_true", help="forward pass in bfloat16")
    parser.add_argument("--stop-after", type=int, help="end after this epoch, as if killed")
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    hvd.init()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    model = make_model(arguments.width)
    optimizer = torch.optim.SGD(model.parameters(), lr=arguments.lr, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    images = Images(arguments.images, arguments.pixels, seed=1)
    sampler, loader = make_loader(images, arguments, is_training=True)
    others = Images(arguments.images // 4, arguments.pixels, seed=2)
    test_loader = make_loader(others, arguments, is_training=False)[1]
    for epoch in range(resume(arguments.checkpoint, model, optimizer), arguments.epochs):
        sampler.set_epoch(epoch)
        loss = train_epoch(epoch, model, optimizer, loader, arguments)
        save(arguments.checkpoint, epoch, model, optimizer)
        if hvd.rank() == 0:
            print(f"epoch {epoch}  loss {loss:.4f}", flush=True)
        if epoch == arguments.stop_after:
            return
    reached = accuracy(model, test_loader)
    if hvd.rank() == 0:
        weights = sum(p.double().sum().item() for p in model.parameters())
        print(f"accuracy {100 * reached:.1f} %  sum of weights {weights!r}", flush=True)


if __name__ == "__main__":
    main()
