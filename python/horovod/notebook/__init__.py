# SPDX-License-Identifier: Apache-2.0
"""Horovod in notebooks: `%load_ext horovod.notebook`, then cells that run on several ranks.

    %%horovod -np 4
    import horovod.torch as hvd
    hvd.init()
    hvd.allreduce(torch.ones(3))

The ranks are processes that stay: variables of one cell are there in the next. docs/notebook.md
describes the magics.
"""

from typing import Any

from horovod.notebook.pool import Pool, PoolError, RankFailed, fold

__all__ = ["Pool", "PoolError", "RankFailed", "fold", "load_ipython_extension"]


def load_ipython_extension(shell: Any) -> None:
    """Register the magics; IPython calls it for `%load_ext horovod.notebook`."""
    from horovod.notebook.magics import HorovodMagics

    shell.register_magics(HorovodMagics)


def unload_ipython_extension(shell: Any) -> None:
    """Stop the ranks; IPython calls it for `%unload_ext horovod.notebook`."""
    magics = shell.magics_manager.registry.get("HorovodMagics")
    if magics is not None:
        magics.stop()
