# SPDX-License-Identifier: Apache-2.0
"""horovod.run(): call a Python function on several ranks from within a program."""

from horovod.runner.api import RankError, run

__all__ = ["RankError", "run"]
