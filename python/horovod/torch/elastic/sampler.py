# SPDX-License-Identifier: Apache-2.0
"""A sampler that goes on where training was interrupted, with however many workers there are."""

import itertools
import math
import random

import torch.utils.data

from horovod.torch.mpi_ops import rank, size


class ElasticSampler(torch.utils.data.Sampler):
    """Shares the samples of an epoch among the ranks; what was processed is not given out again.

    Call `record_batch` after each batch and `set_epoch` at the end of an epoch, and put the sampler
    into the TorchState. Every rank gets the same number of samples, `len(sampler)`: where they do
    not divide evenly, the first ones of the remaining epoch are repeated as often as needed.

    `indices` is this rank's share, `remaining_indices` what all ranks together still have to do.
    """

    def __init__(self, dataset, shuffle=True, seed=0):
        self.dataset = dataset
        self.shuffle = shuffle
        self.seed = seed
        self.epoch = 0
        self.processed_indices = set()
        self.processed_num = 0
        self.num_replicas = 0
        self.rank = 0
        self.remaining_indices = []
        self.indices = []
        self.num_samples = 0
        self.total_size = 0
        self.reset()

    def set_epoch(self, epoch):
        """Begin an epoch: shuffle anew, nothing is processed yet."""
        self.epoch = epoch
        self.processed_num = 0
        self.reset()

    def record_batch(self, batch_idx, batch_size):
        """Count a batch that every rank has processed."""
        self.processed_num += batch_size * self.num_replicas

    def load_state_dict(self, state_dict):
        self.epoch = state_dict["epoch"]
        self.processed_num = state_dict["processed_num"]
        self.reset()

    def state_dict(self):
        return {"epoch": self.epoch, "processed_num": self.processed_num}

    def reset(self):
        """Share what is left of the epoch among the ranks there are now."""
        self.num_replicas = size()
        self.rank = rank()
        indices = list(range(len(self.dataset)))
        if self.shuffle:
            random.Random(self.seed + self.epoch).shuffle(indices)
        self.remaining_indices = indices[self.processed_num :]
        self.num_samples = math.ceil(len(self.remaining_indices) / self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas
        self.indices = self._share()

    def _share(self):
        """Every num_replicas-th of the remaining samples, which begin again when they run out."""
        endless = itertools.cycle(self.remaining_indices)
        return list(itertools.islice(endless, self.rank, self.total_size, self.num_replicas))

    def __iter__(self):
        self.indices = self._share()
        assert len(self.indices) == self.num_samples
        return iter(self.indices)

    def __len__(self):
        return self.num_samples
