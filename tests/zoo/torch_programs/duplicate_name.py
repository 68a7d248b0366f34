# SPDX-License-Identifier: Apache-2.0
"""Rank 1 gives two tensors the same name."""

import horovod.torch as hvd
import torch

hvd.init()
names = ["a", "a"] if hvd.rank() == 1 else ["a", "b"]
tensors = [torch.ones(1 << 20), torch.ones(1 << 20)]
handles = []
for tensor, name in zip(tensors, names, strict=True):
    handles.append(hvd.allreduce_async(tensor, name=name))  # HERE
for handle in handles:
    hvd.synchronize(handle)  # WAITS
