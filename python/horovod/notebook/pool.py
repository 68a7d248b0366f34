# SPDX-License-Identifier: Apache-2.0
"""Ranks that stay and run one piece of code after the other; the notebook's side.

horovodrun starts horovod.notebook.worker once for each rank, as new processes and not by fork, so
it does not matter what the notebook has imported. Each rank connects to a socket in a folder that
only this user can enter, and proves that it knows a key before anything is unpickled. If the
notebook's kernel ends, the ranks see their connections close and end, too.
"""

import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import Pipe
from multiprocessing.connection import Client, Connection, Listener, wait
from pathlib import Path
from typing import Any

import cloudpickle

START_S = 120.0
INTERRUPT_S = 0.8  # how long a rank may take to end its cell after Ctrl-C

__all__ = ["Pool", "PoolError", "RankFailed", "fold"]


class PoolError(RuntimeError):
    """The ranks could not be started, or are gone."""


@contextmanager
def interrupts() -> Iterator[Connection]:
    """In here Ctrl-C raises nothing, but makes this connection readable.

    An exception could come between two ranks, of which one then has a message that the other has
    not, or while an answer is read. Only the main thread gets Ctrl-C.
    """
    reader, writer = Pipe(duplex=False)
    is_held = (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )
    try:
        if is_held:
            signal.signal(signal.SIGINT, lambda number, frame: writer.send_bytes(b"!"))
        yield reader
    finally:
        if is_held:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        reader.close()
        writer.close()


class RankFailed(RuntimeError):  # noqa: N818
    """A cell raised an exception on some ranks; their tracebacks were printed."""


def name_ranks(ranks: Sequence[int], size: int) -> str:
    """A short name: "all ranks", "rank 2", "ranks 0-2, 5"."""
    if len(ranks) == size and size > 1:
        return f"all {size} ranks"
    parts: list[str] = []
    first = last = ranks[0]
    for rank in [*ranks[1:], -1]:
        if rank == last + 1:
            last = rank
            continue
        parts.append(str(first) if first == last else f"{first}-{last}")
        first = last = rank
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(parts)}"


def fold(texts: Sequence[str]) -> list[tuple[str, str]]:
    """(name of the ranks, text) for each different text; texts[i] is rank i's.

    Empty texts are left out.
    """
    ranks_of: dict[str, list[int]] = {}
    for rank, text in enumerate(texts):
        ranks_of.setdefault(text, []).append(rank)
    return [(name_ranks(ranks, len(texts)), text) for text, ranks in ranks_of.items() if text]


class Pool:
    """Some ranks of one job on this machine."""

    def __init__(self, num_proc: int, launcher_args: Iterable[str] = ()):
        self.num_proc = num_proc
        self._folder = Path(tempfile.mkdtemp(prefix="horovod-notebook-"))
        self._connections: list[Connection] = []
        self._pids: list[int] = []
        key = secrets.token_bytes(32)
        address = str(self._folder / "socket")
        self._log = self._folder / "log"
        env = dict(os.environ, _HVD_NOTEBOOK_ADDRESS=address, _HVD_NOTEBOOK_KEY=key.hex())
        beside = Path(sys.executable).with_name("horovodrun")
        launcher = str(beside) if beside.exists() else "horovodrun"
        program = [sys.executable, "-m", "horovod.notebook.worker"]
        with Listener(address, "AF_UNIX", backlog=num_proc, authkey=key) as listener:
            with self._log.open("wb") as log:
                # A separate session: Ctrl-C in the notebook is for the cell, not the launcher.
                self._launcher = subprocess.Popen(
                    [launcher, "-np", str(num_proc), *launcher_args, *program],
                    env=env,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            self._accept(listener)

    def _accept(self, listener: Listener) -> None:
        found: dict[int, tuple[int, Connection]] = {}
        deadline = time.monotonic() + START_S
        handle = listener._listener._socket  # type: ignore[attr-defined]
        while len(found) < self.num_proc:
            if not wait([handle], timeout=0.1):
                if self._launcher.poll() is not None or time.monotonic() > deadline:
                    raise PoolError(f"the ranks did not start:\n{self._last_words()}")
                continue
            connection = listener.accept()
            rank, pid = connection.recv()
            found[rank] = (pid, connection)
        for rank in range(self.num_proc):
            pid, connection = found[rank]
            self._pids.append(pid)
            self._connections.append(connection)

    def _last_words(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")[-4000:]

    @property
    def is_alive(self) -> bool:
        """Can cells be run?"""
        return bool(self._connections) and self._launcher.poll() is None

    def call(self, message: tuple[Any, ...]) -> list[Any]:
        """Send a message to all ranks; what each of them answered. Ctrl-C stops the ranks' cell."""
        data = cloudpickle.dumps(message)
        with interrupts() as interrupted:
            try:
                for connection in self._connections:
                    connection.send_bytes(data)
            except OSError:
                self._gone()
            answers = self._collect(interrupted)
        return [answers[rank] for rank in range(self.num_proc)]

    def _collect(self, interrupted: Connection) -> dict[int, Any]:
        """Wait for all answers; after an interrupt not for long."""
        answers: dict[int, Any] = {}
        deadline = None
        while len(answers) < self.num_proc:
            left = [c for i, c in enumerate(self._connections) if i not in answers]
            if deadline is None:
                ready = wait([*left, interrupted])
            else:
                ready = wait(left, max(0.0, deadline - time.monotonic()))
            if not ready:
                self._give_up([rank for rank in range(self.num_proc) if rank not in answers])
            for connection in ready:
                if connection is interrupted:
                    deadline = time.monotonic() + INTERRUPT_S
                    continue
                try:
                    answer = cloudpickle.loads(connection.recv_bytes())  # type: ignore[union-attr]
                except (EOFError, OSError):
                    self._gone()
                answers[self._connections.index(connection)] = answer  # type: ignore[arg-type]
            if interrupted in ready:
                for rank, pid in enumerate(self._pids):
                    if rank not in answers:
                        os.kill(pid, signal.SIGINT)
        return answers

    def _give_up(self, late: Sequence[int]) -> None:
        self.stop()
        raise PoolError(
            f"{name_ranks(late, self.num_proc)} did not react to the interrupt; all ranks were "
            "stopped, their variables are lost. The next cell starts new ones."
        )

    def _gone(self) -> None:
        """A rank has ended: let horovodrun say which and why."""
        try:
            self._launcher.wait(10)
        except subprocess.TimeoutExpired:
            pass
        words = self._last_words()
        self.stop()
        raise PoolError(f"a rank ended, all ranks were stopped:\n{words}")

    def stop(self) -> None:
        """End the ranks and wait for them."""
        for connection in self._connections:
            connection.close()
        self._connections = []
        try:
            self._launcher.wait(0.5)
        except subprocess.TimeoutExpired:
            self._launcher.terminate()
            self._launcher.wait()
        shutil.rmtree(self._folder, ignore_errors=True)


def connect(address: str, key: bytes) -> Connection:
    """The rank's end."""
    return Client(address, "AF_UNIX", authkey=key)
