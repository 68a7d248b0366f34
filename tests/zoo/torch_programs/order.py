# SPDX-License-Identifier: Apache-2.0
"""Two metrics, in the order of a set of names, which differs between processes."""

import horovod.torch as hvd
import torch

hvd.init()
names = ["accuracy", "loss"] if hvd.rank() == 0 else ["loss", "accuracy"]
for name in names:
    hvd.allreduce(torch.ones(1), name=name)  # HERE
