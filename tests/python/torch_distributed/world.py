# SPDX-License-Identifier: Apache-2.0
"""What the files of ranks begin with: a world of the backend."""

from datetime import timedelta

import torch.distributed as dist

LIMIT = timedelta(seconds=240)


def begin():
    """Rank and size of a world that has begun."""
    if not dist.is_initialized():
        dist.init_process_group("horovod", timeout=LIMIT)
    return dist.get_rank(), dist.get_world_size()
