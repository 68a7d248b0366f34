# SPDX-License-Identifier: Apache-2.0
"""Rank 1 trains in another precision."""

import horovod.torch as hvd
import torch

hvd.init()
dtype = torch.float64 if hvd.rank() == 1 else torch.float32
hvd.allreduce(torch.ones(4, dtype=dtype), name="loss")  # HERE
