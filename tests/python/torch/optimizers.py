# SPDX-License-Identifier: Apache-2.0
"""What the files of ranks share about optimizers."""

import inspect
import os

import torch
from horovod.torch import optimizer as optimizer_module

# Of torch.optim, those that can be wrapped.
CLASSES = sorted(
    name
    for name, value in vars(torch.optim).items()
    if inspect.isclass(value)
    and issubclass(value, torch.optim.Optimizer)
    and name not in ("Optimizer", "LBFGS", "SparseAdam")
)


def overlap_if_told(rank):
    """TEST_OVERLAP: on all ranks, or on some only, which is right, too."""
    if "TEST_OVERLAP" in os.environ:
        is_overlapping = os.environ["TEST_OVERLAP"] == "all" or rank == 0
        optimizer_module._has_spare_core = lambda: is_overlapping
