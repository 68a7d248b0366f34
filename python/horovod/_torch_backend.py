# SPDX-License-Identifier: Apache-2.0
"""Makes the backend `horovod` known to torch.distributed; PyTorch calls this when it is imported.

The entry point `torch.backends` of our package names register(). It must stay light: it imports
nothing of ours, and the library is loaded when a process group is made.
"""

import os
import sys
from typing import Any

_NAME = "horovod"
# Who started us, where torchrun did not.
_RANKS = ("HOROVOD_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")


def _create(options: Any, backend_options: Any = None) -> Any:
    from horovod.torch.distributed import meeting

    return meeting.create(options, backend_options)


def _rendezvous_before(env: Any) -> Any:
    """Before torch reads RANK and MASTER_ADDR: they are missing under horovodrun, mpirun, srun."""

    def rendezvous(url: str, *args: Any, **kwargs: Any) -> Any:
        is_ours = any(name in os.environ for name in _RANKS) or "horovod._native" in sys.modules
        if "MASTER_ADDR" in os.environ or "RANK" in os.environ or not is_ours:
            return env(url, *args, **kwargs)
        from horovod.torch.distributed import meeting

        return meeting.rendezvous_before(env)(url, *args, **kwargs)

    return rendezvous


def register() -> None:
    """Register the backend. Does nothing where it is known already or PyTorch lacks distributed."""
    dist = sys.modules.get("torch.distributed")
    if dist is None:
        import torch.distributed as dist  # type: ignore[no-redef]
    if not dist.is_available() or _NAME in dist.Backend.backend_list:
        return
    dist.Backend.register_backend(_NAME, _create, extended_api=True, devices=["cpu"])
    handlers = getattr(sys.modules.get("torch.distributed.rendezvous"), "_rendezvous_handlers", {})
    if "env" in handlers:
        handlers["env"] = _rendezvous_before(handlers["env"])
