# SPDX-License-Identifier: Apache-2.0
"""Rank 1 is killed, as by the kernel when memory is exhausted."""

import os
import signal

import horovod.torch as hvd
import torch

hvd.init()
for step in range(100000):
    if hvd.rank() == 1 and step == 20:
        os.kill(os.getpid(), signal.SIGKILL)
    hvd.allreduce(torch.ones(4), name="grad")  # WAITS
