# SPDX-License-Identifier: Apache-2.0
"""Horovod's engine under torch.distributed: `init_process_group("horovod")`.

PyTorch finds the backend by itself where this package is installed; importing this module does the
same by hand. docs/torch_distributed.md says when to use it and when `horovod.torch`.
"""

from horovod._torch_backend import register
from horovod.torch.distributed.group import HorovodProcessGroup
from horovod.torch.distributed.work import HorovodWork

__all__ = ["HorovodProcessGroup", "HorovodWork", "register"]

register()
