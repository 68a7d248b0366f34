# SPDX-License-Identifier: Apache-2.0
"""horovod.run(): call a Python function on several ranks from within a program."""

from horovod.runner.api import RankError, run

__all__ = ["RankError", "run"]


class _HorovodArgs:
    """The options of horovodrun as attributes with their defaults, for launch._run().

    Programs that set options rather than write a command line make one, set `run_func` or `command`
    and what else they need, and run it.
    """

    def __init__(self):
        from horovod.runner import launch

        vars(self).update(launch.default_args())
