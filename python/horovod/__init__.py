# SPDX-License-Identifier: Apache-2.0
"""Horovod: distributed deep-learning training; `import horovod.torch as hvd` and its sisters."""

from horovod.runner import run

__version__ = "0.28.1"

__all__ = ["run", "__version__"]
