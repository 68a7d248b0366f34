#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Train a small network on images of digits with workers that may be lost and added.

    horovodrun -np 4 --min-np 2 --max-np 4 -H localhost:4 python pytorch_elastic.py

The images come with scikit-learn, so nothing is downloaded. What makes the script elastic is marked
with "elastic:".
"""

import argparse

import horovod.torch as hvd
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=16, help="of each rank")
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--checkpoint", help="file that a worker writes before it leaves")
    return parser.parse_args()


def load_data():
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).flatten(1) / 16.0
    return TensorDataset(images, torch.tensor(digits.target))


def main():
    arguments = parse_arguments()
    hvd.init()
    torch.manual_seed(42)
    data = load_data()
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=arguments.lr, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())

    # elastic: gives out each sample once in an epoch, however many workers there are
    sampler = hvd.elastic.ElasticSampler(data)
    # elastic: everything that training must not lose
    state = hvd.elastic.TorchState(
        model=model, optimizer=optimizer, sampler=sampler, epoch=0, batch=0
    )

    def on_reset():
        if hvd.rank() == 0:
            print(f"{hvd.size()} workers from epoch {state.epoch}, batch {state.batch}", flush=True)

    state.register_reset_callbacks([on_reset])
    if arguments.checkpoint:
        # elastic: a worker that gets SIGTERM finishes its step, and then does this
        state.register_leave_callbacks(
            [lambda: torch.save(model.state_dict(), arguments.checkpoint)]
        )

    # elastic: starts anew, from the last commit, whenever workers were lost or added
    @hvd.elastic.run
    def train(state):
        while state.epoch < arguments.epochs:
            loss = torch.zeros(())
            # The batches that are left of this epoch; the loader is made anew after a reset.
            for images, labels in DataLoader(data, arguments.batch_size, sampler=state.sampler):
                optimizer.zero_grad()
                loss = F.cross_entropy(model(images), labels)
                loss.backward()
                optimizer.step()
                state.batch += 1
                state.sampler.record_batch(state.batch, arguments.batch_size)
                # elastic: from here training goes on if a worker is lost
                state.commit()
            loss = hvd.allreduce(loss.detach(), name="loss")
            if hvd.rank() == 0:
                print(f"epoch {state.epoch}: loss {loss:.4f}, {hvd.size()} workers", flush=True)
            state.epoch, state.batch = state.epoch + 1, 0
            state.sampler.set_epoch(state.epoch)
            state.commit()

    train(state)
    if hvd.rank() == 0:
        print("done", flush=True)


if __name__ == "__main__":
    main()
