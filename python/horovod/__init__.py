# SPDX-License-Identifier: Apache-2.0
"""Horovod: distributed deep-learning training; `import horovod.torch as hvd` and its sisters."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from horovod.runner import run

__version__ = "0.29.0"

__all__ = ["run", "__version__"]


def __getattr__(name: str) -> Any:
    """`run` is imported when it is asked for: importing torch imports this package."""
    if name != "run":
        raise AttributeError(f"module 'horovod' has no attribute {name!r}")
    from horovod.runner import run as function

    globals()["run"] = function
    return function
