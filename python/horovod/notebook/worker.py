# SPDX-License-Identifier: Apache-2.0
"""A rank of a notebook: runs cells in one namespace and answers with what they printed."""

import ast
import contextlib
import io
import linecache
import os
import signal
import traceback
from typing import Any

import cloudpickle

from horovod.notebook.pool import connect


class _Output(io.StringIO):
    """Output of a cell; programs that look for a file find none."""

    def fileno(self):
        raise io.UnsupportedOperation("fileno")


def _run(code: str, number: int, namespace: dict[str, Any]) -> None:
    """Run a cell; the value of its last line is printed, as notebooks do."""
    name = f"<cell {number}>"
    linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
    tree = ast.parse(code, name)
    last = None
    if tree.body and isinstance(tree.body[-1], ast.Expr):
        last = ast.Expression(tree.body.pop().value)  # type: ignore[attr-defined]
    exec(compile(tree, name, "exec"), namespace)
    if last is not None:
        value = eval(compile(last, name, "eval"), namespace)
        if value is not None:
            print(repr(value))


def _trace(error: BaseException) -> str:
    """The traceback from the cell on."""
    trace = error.__traceback__
    while trace is not None and not trace.tb_frame.f_code.co_filename.startswith("<cell"):
        trace = trace.tb_next
    return "".join(traceback.format_exception(type(error), error, trace))


def _answer(message: tuple[Any, ...], namespace: dict[str, Any]) -> tuple[str, str, Any]:
    """(output, traceback, value)"""
    kind, *rest = message
    if kind == "push":
        namespace.update(rest[0])
        return "", "", None
    if kind == "pull":
        missing = [name for name in rest[0] if name not in namespace]
        if missing:
            return "", f"NameError: name {missing[0]!r} is not defined\n", None
        return "", "", {name: namespace[name] for name in rest[0]}
    output = _Output()
    failure = ""
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        try:
            # Ctrl-C is for cells: one that comes late must not end the rank.
            signal.signal(signal.SIGINT, signal.default_int_handler)
            try:
                _run(rest[0], rest[1], namespace)
            finally:
                signal.signal(signal.SIGINT, signal.SIG_IGN)
        except BaseException as error:  # SystemExit, too: the rank stays
            failure = _trace(error)
    return output.getvalue(), failure, None


def main() -> None:
    """Connect, then answer until the notebook closes the connection."""
    address = os.environ.pop("_HVD_NOTEBOOK_ADDRESS")
    key = bytes.fromhex(os.environ.pop("_HVD_NOTEBOOK_KEY"))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    connection = connect(address, key)
    rank = int(os.environ.get("HOROVOD_RANK", 0))
    connection.send((rank, os.getpid()))
    namespace: dict[str, Any] = {"__name__": "__main__"}
    while True:
        try:
            message = cloudpickle.loads(connection.recv_bytes())
        except (EOFError, OSError):
            return
        answer = _answer(message, namespace)
        try:
            data = cloudpickle.dumps(answer)
        except Exception as error:
            data = cloudpickle.dumps(
                ("", f"can't be sent: {type(error).__name__}: {error}\n", None)
            )
        connection.send_bytes(data)


if __name__ == "__main__":
    main()
