# SPDX-License-Identifier: Apache-2.0
"""Services of the original launcher's search for interfaces, which is not needed here."""

from horovod.runner.absent import refuse_names

__getattr__ = refuse_names(
    __name__,
    "the launcher is a native program that talks to its agents over ssh, and ranks find each other "
    "by which address answers; for calls between your own processes there is "
    "horovod.runner.common.util.network",
)
