# SPDX-License-Identifier: Apache-2.0
"""Rank 1 finds a bad sample."""

import horovod.torch as hvd
import torch


def check(step):
    if hvd.rank() == 1 and step == 3:
        raise ValueError("sample 17 has no label")  # HERE


hvd.init()
for step in range(100000):
    check(step)
    hvd.allreduce(torch.ones(4), name="grad")  # WAITS
