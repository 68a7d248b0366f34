# SPDX-License-Identifier: Apache-2.0
"""Values that rank 0 logs while it trains, for the callbacks of RayExecutor.run()."""

import os
from typing import Any

_queue: Any = None


def configure(queue: Any) -> None:
    """Where values go; None: nowhere."""
    global _queue
    _queue = queue


def log(info_dict: dict[str, Any]) -> None:
    """Pass a dict to the callbacks. Ranks other than 0, and runs without callbacks, ignore it."""
    if not isinstance(info_dict, dict):
        raise TypeError(f"ray_logger.log() takes a dict, not {type(info_dict).__name__}")
    if _queue is not None and _rank() == 0:
        _queue.put(info_dict)


def _rank():
    from horovod.common.library import native

    if native.is_initialized():
        return native.rank()
    return int(os.environ.get("HOROVOD_RANK") or 0)
