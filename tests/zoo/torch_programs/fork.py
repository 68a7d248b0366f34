# SPDX-License-Identifier: Apache-2.0
"""A loader process of rank 1 is forked while it can't work, and never ends."""

import os
import time

import horovod.torch as hvd
import torch


def load():
    child = os.fork()
    if child == 0:
        time.sleep(1000)
        os._exit(0)
    os.waitpid(child, 0)  # HERE


hvd.init()
hvd.allreduce(torch.ones(4), name="first")
if hvd.rank() == 1:
    load()
hvd.allreduce(torch.ones(4), name="second")  # WAITS
