# SPDX-License-Identifier: Apache-2.0
"""Rank 1 stops early, by itself, with exit code 0."""

import sys

import horovod.torch as hvd
import torch

hvd.init()
for step in range(100000):
    if hvd.rank() == 1 and step == 20:
        sys.exit(0)
    hvd.allreduce(torch.ones(4), name="grad")  # WAITS
