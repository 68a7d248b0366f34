# SPDX-License-Identifier: Apache-2.0
"""The magics: %%horovod, %hvd_push, %hvd_pull, %hvd_stop."""

import argparse
import atexit
import shlex
import sys
from typing import Any

from IPython.core.error import UsageError
from IPython.core.magic import Magics, cell_magic, line_magic, magics_class

from horovod.notebook.pool import Pool, RankFailed, fold


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> Any:
        raise UsageError(f"{message}\n{self.format_usage()}")


@magics_class
class HorovodMagics(Magics):
    """Cells on several ranks, whose processes stay."""

    def __init__(self, shell: Any):
        super().__init__(shell)
        self._pool: Pool | None = None
        self._cells = 0
        atexit.register(self.stop)

    def stop(self) -> None:
        """End the ranks."""
        if self._pool is not None:
            self._pool.stop()
            self._pool = None

    def _ranks(self) -> Pool:
        if self._pool is None or not self._pool.is_alive:
            raise UsageError("there are no ranks: run a cell with %%horovod -np N first")
        return self._pool

    def _show(self, answers: list[tuple[str, str, Any]]) -> None:
        """Equal output once, with the names of the ranks; then equal tracebacks once."""
        for name, text in fold([answer[0] for answer in answers]):
            print(f"[{name}]\n{text}", end="" if text.endswith("\n") else "\n")
        failures = fold([answer[1] for answer in answers])
        for name, text in failures:
            print(f"[{name}]\n{text}", end="", file=sys.stderr)
        if failures:
            causes = "; ".join(f"{name}: {text.splitlines()[-1]}" for name, text in failures)
            raise RankFailed(causes)

    @cell_magic
    def horovod(self, line: str, cell: str) -> None:
        """Run the cell on all ranks: %%horovod -np 4 [--restart] [options of horovodrun]."""
        parser = _Parser(prog="%%horovod", add_help=False)
        parser.add_argument("-np", "--num-proc", type=int)
        parser.add_argument("--restart", action="store_true", help="forget variables, start again")
        arguments, more = parser.parse_known_args(shlex.split(line))
        if self._pool is not None and not self._pool.is_alive:
            self.stop()
        wanted = arguments.num_proc or (self._pool.num_proc if self._pool else None)
        if wanted is None or wanted < 1:
            raise UsageError("how many ranks? %%horovod -np 4")
        if self._pool is not None and (arguments.restart or self._pool.num_proc != wanted):
            self.stop()
        if self._pool is None:
            self._pool = Pool(wanted, more)
        self._cells += 1
        self._show(self._pool.call(("run", cell, self._cells)))

    @line_magic
    def hvd_push(self, line: str) -> None:
        """Give variables of the notebook to all ranks: %hvd_push a b."""
        names = line.split()
        missing = [name for name in names if name not in self.shell.user_ns]
        if missing or not names:
            raise UsageError(f"no such variable: {', '.join(missing) or '(none named)'}")
        self._show(self._ranks().call(("push", {n: self.shell.user_ns[n] for n in names})))

    @line_magic
    def hvd_pull(self, line: str) -> None:
        """Get variables, one value per rank: %hvd_pull a b; of one rank: %hvd_pull -r 0 a."""
        parser = _Parser(prog="%hvd_pull", add_help=False)
        parser.add_argument("-r", "--rank", type=int)
        parser.add_argument("names", nargs="+")
        arguments = parser.parse_args(shlex.split(line))
        answers = self._ranks().call(("pull", arguments.names))
        self._show(answers)
        for name in arguments.names:
            values = [answer[2][name] for answer in answers]
            self.shell.user_ns[name] = values if arguments.rank is None else values[arguments.rank]

    @line_magic
    def hvd_stop(self, line: str) -> None:
        """End the ranks; the next %%horovod starts new ones."""
        self.stop()
