# SPDX-License-Identifier: Apache-2.0
"""Rank 0 does one collective more than the others."""

import horovod.torch as hvd
import torch

hvd.init()
for _ in range(5):
    hvd.allreduce(torch.ones(4), name="grad")
if hvd.rank() == 0:
    hvd.allreduce(torch.ones(1), name="log")  # HERE
hvd.allreduce(torch.ones(4), name="next")  # WAITS
