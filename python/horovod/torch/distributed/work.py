# SPDX-License-Identifier: Apache-2.0
"""Operations of a torch.distributed group in flight: `HorovodWork` and the tasks it is made of.

A Task is one operation of the core. A HorovodWork is what torch.distributed hands to scripts: one
or more tasks, and what to do with their results. Both end once; whichever thread sees the end of a
task first settles it:

* a thread inside `wait()` drives the core itself, so a synchronous call costs no thread switch;
* a synchronous call whose operation ends soon needs no more than that (`run`, `EndedWork`);
* otherwise one of the threads that take the handles of ended operations from the core (`told`).

A task holds its tensors until the core has ended the operation, also if the wait for it timed out.
Of two threads only the one that holds `claim` may ask the core about a handle. A handle is released
when it is settled and `told` has given it out, because the core still knows it until then.

Start reading at `HorovodWork.wait` and `Flights.start`.
"""

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from horovod.common import handles as _handles_module
from horovod.common.library import native
from horovod.torch.distributed.order import Order
from horovod.torch.private import Work as _BaseWork

_NETWORK_ERRORS = (native.ERR_LINK, native.ERR_PEER_DEAD, native.ERR_PEER_HUNG)
_THREADS = 2
_TICK_MS = 1000
_SLICE_MS = 1000
_SOON_MS = 20
_LEAVE_S = 5.0
_IN_PROGRESS = native.IN_PROGRESS


def make_error(text: str, status: int) -> Exception:
    """The exception of torch.distributed for a status of the core; it keeps the status."""
    kind = dist.DistNetworkError if status in _NETWORK_ERRORS else dist.DistBackendError
    error = kind(text)
    error.status = status
    return error


class Task:
    """One operation of the core: `submit(flags)` gives its handle, `finish(handle)` its result."""

    __slots__ = (
        "claim",
        "error",
        "finish",
        "handle",
        "is_done",
        "is_released",
        "is_told",
        "kept",
        "name",
        "names",
        "owner",
        "position",
        "result",
        "submit",
    )

    def __init__(
        self,
        submit: Callable[[int], int],
        finish: Callable[[int], Any] | None,
        kept: Any,
        name: str | None = None,
    ) -> None:
        self.submit = submit
        self.finish = finish
        self.kept = kept
        self.name = name
        self.names: Names | None = None
        self.position = -1  # in the order of its group
        self.handle: Any = None  # None: it waits for another of its name
        self.owner: HorovodWork | None = None
        self.claim = threading.Lock()
        self.result: Any = None
        self.error: Exception | None = None
        self.is_done = False
        self.is_told = False
        self.is_released = False


class Names:
    """The names of a group's operations that are in flight; the next of a name waits its turn."""

    __slots__ = ("busy", "idle", "lock", "order")

    def __init__(self, order: Order) -> None:
        self.order = order
        self.lock = threading.RLock()
        self.busy: dict[str, deque[Task]] = {}
        self.idle: Callable[[], None] | None = None

    def when_idle(self, call: Callable[[], None]) -> None:
        """Call a function when nothing is in flight, at once if nothing is."""
        with self.lock:
            if self.busy:
                self.idle = call
                return
        call()

    def free(self, name: str) -> Callable[[], None] | None:
        """A name is no longer in flight; what to call then. The caller holds the lock."""
        del self.busy[name]
        call = None
        if not self.busy:
            call, self.idle = self.idle, None
        return call


class Flights:
    """All tasks that the core has, by handle, and the threads that see them end."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.tasks: dict[int, Task] = {}
        self.early: set[int] = set()
        self.threads: list[threading.Thread] = []
        self.working = 0  # of the threads
        self.rested = threading.Condition(self.lock)
        self._abandoned: dict[int, Any] = {}  # for handles.begin_life(): we have none
        _handles_module._tables.add(self)  # type: ignore[arg-type]

    # ---- start ----

    def start(self, task: Task, is_waited: bool) -> None:
        """Hand a task to the core, or queue it behind one of the same name."""
        names = task.names
        if names is None or task.name is None:
            self._submit(task, is_waited)
            return
        with names.lock:
            queue = names.busy.get(task.name)
            if queue is not None:
                queue.append(task)
                return
            names.busy[task.name] = deque()
            try:
                self._submit(task, is_waited)
            except BaseException:
                self._next(task)
                raise

    def run(self, task: Task) -> bool:
        """Start a task that somebody waits for: True if it has soon ended well.

        Otherwise it has a handle, or has none because another of its name is in flight.
        """
        names, name = task.names, task.name
        if names is None or name is None or task.finish is not None:
            return False
        with names.lock:
            if name in names.busy:
                return False
            self.start(task, True)
        try:
            has_ended = native.have_ended([task.handle], _SOON_MS)
        except BaseException:
            self.adopt([task])
            raise
        if not has_ended or native.status(task.handle) != 0:
            return False
        self._next(task)
        self._done(task, None)
        self._release(task)
        return True

    def _submit(self, task: Task, is_waited: bool) -> None:
        if not is_waited and not self.threads:
            self._start_threads()
        try:
            handle = task.submit(native.OP_WAITED if is_waited else native.OP_TOLD)
        except native.StatusError as error:
            raise make_error(str(error), error.status) from None
        if is_waited:
            task.is_told = True
            task.handle = handle
            return
        with self.lock:
            task.handle = handle
            if handle not in self.early:
                self.tasks[handle] = task
                return
            self.early.discard(handle)
        self._on_told(task)

    def _next(self, task: Task) -> None:
        """The name of a task is free: its successor starts."""
        names = task.names
        if names is None or task.name is None:
            return
        with names.lock:
            queue = names.busy[task.name]
            while queue:
                successor = queue.popleft()
                try:
                    self._submit(successor, False)
                    return
                except Exception as error:
                    self._done(successor, error)
            call = names.free(task.name)
        if call is not None:
            call()

    def adopt(self, tasks: Sequence[Task]) -> None:
        """The thread that was to wait for these has given up."""
        self._start_threads()
        with self.lock:
            for task in tasks:
                if task.handle is not None and not task.is_done:
                    self.tasks.setdefault(task.handle, task)

    # ---- the end of a task ----

    def settle(self, task: Task) -> None:
        """The core has ended it; the caller holds the claim."""
        if task.is_done:
            return
        error = None
        handle = task.handle
        status = native.status(handle)
        if status == _IN_PROGRESS:
            return
        if status != 0:
            error = self._error_of(task, status)
        elif task.finish is not None:
            try:
                task.result = task.finish(handle)
            except Exception as failure:
                error = failure
        self._next(task)
        self._done(task, error)
        self._release(task)

    @staticmethod
    def _error_of(task: Task, status: int) -> Exception:
        text = native.error(task.handle) or "The operation has failed."
        if status == native.ERR_MISMATCH and task.names is not None:
            task.names.order.disagreed(task.position)
            what = task.owner.what if task.owner is not None else "A collective"
            text = f"{what}: the ranks of the group disagree about this collective. {text}"
        return make_error(text, status)

    def _done(self, task: Task, error: Exception | None) -> None:
        task.error = error
        task.submit = task.finish = task.kept = None  # type: ignore[assignment]
        task.is_done = True
        owner, task.owner = task.owner, None
        if owner is not None:
            owner._part_done(error)

    def _release(self, task: Task) -> None:
        with self.lock:
            if not (task.is_told and task.is_done) or task.is_released:
                return
            task.is_released = True
        native.release(task.handle)

    def _on_told(self, task: Task) -> None:
        task.is_told = True
        if task.claim.acquire(blocking=False):
            try:
                self.settle(task)
            finally:
                task.claim.release()
        # Otherwise the thread that waits for it settles it.
        self._release(task)

    # ---- threads ----

    def _start_threads(self) -> None:
        with self.lock:
            if self.threads:
                return
            self.threads = [
                threading.Thread(target=self._run, name=f"horovod-ended-{i}", daemon=True)
                for i in range(_THREADS)
            ]
        for thread in self.threads:
            thread.start()

    def _run(self) -> None:
        last = time.monotonic()
        while True:
            handle = native.told(_TICK_MS)
            with self.lock:
                self.working += 1
            if handle:
                self._take(handle)
            now = time.monotonic()
            if now - last >= _TICK_MS / 1000:
                last = now
                self._expire(now)
            with self.rested:
                self.working -= 1
                self.rested.notify_all()

    def _take(self, handle: int) -> None:
        with self.lock:
            task = self.tasks.pop(handle, None)
            if task is None:
                self.early.add(handle)
        if task is not None:
            with contextlib.suppress(Exception):
                self._on_told(task)

    def _expire(self, now: float) -> None:
        """Works whose time is over fail, for those who wait for their futures."""
        with self.lock:
            tasks = list(self.tasks.values())
        owners = {task.owner for task in tasks if task.owner is not None}
        for owner in owners:
            if owner.deadline is not None and owner.deadline < now:
                owner._fail(owner._timeout_error())
        for task in tasks:
            if task.is_told and native.poll(task.handle):  # nobody is told of an adopted one
                with self.lock:
                    self.tasks.pop(task.handle, None)
                self._on_told(task)

    # ---- life: see common/handles.py ----

    def begin(self) -> None:
        """A new life: handles are numbered anew."""
        with self.lock:
            self.early.clear()

    def _end(self) -> None:
        pass

    def _clear(self) -> None:
        with self.lock:
            tasks = list(self.tasks.values())
            self.tasks.clear()
            self.early.clear()
        for task in tasks:
            if not task.is_done:
                self._next_of_dead(task)
                self._done(task, make_error("Horovod has been shut down.", native.ERR_SHUTDOWN))
        self._let_threads_rest()

    def _let_threads_rest(self) -> None:
        """Let callbacks end: one that is in C++ when the interpreter ends aborts the process."""
        if threading.current_thread() not in self.threads:
            with self.rested:
                self.rested.wait_for(lambda: self.working == 0, _LEAVE_S)

    def _next_of_dead(self, task: Task) -> None:
        names = task.names
        if names is None or task.name is None:
            return
        with names.lock:
            queue = names.busy.pop(task.name, None) or ()
        for successor in queue:
            self._done(successor, make_error("Horovod has been shut down.", native.ERR_SHUTDOWN))


flights = Flights()


def _seconds(timeout: timedelta | None) -> float | None:
    """A time limit of torch.distributed; None where none is given."""
    if timeout is None or timeout.total_seconds() <= 0:
        return None
    return timeout.total_seconds()


class HorovodWork(_BaseWork):
    """What a collective of the backend returns."""

    def __init__(
        self,
        what: str,
        tasks: Sequence[Task],
        outputs: Any,
        timeout: timedelta | None,
        at_end: Callable[[Sequence[Task]], None] | None = None,
    ) -> None:
        super().__init__()
        self.what = what
        self.outputs = outputs
        self.limit_s = _seconds(timeout)
        self.started = time.monotonic()
        self.deadline = None if self.limit_s is None else self.started + self.limit_s
        self._tasks = list(tasks)
        self._at_end = at_end
        self._left = len(self._tasks)
        self._error: Exception | None = None
        self._is_done = False
        self._lock = threading.Lock()
        self._event = threading.Event()
        self._future: torch.futures.Future | None = None
        self._ended: torch.futures.Future | None = None  # what `_future` waits for
        self._listeners: list[Callable[[HorovodWork], None]] = []
        for task in self._tasks:
            task.owner = self
        if not self._tasks:
            self._complete(None)

    def start(self, is_waited: bool) -> "HorovodWork":
        """Hand all tasks to the core; nothing is in flight if the first is refused."""
        is_waited = is_waited and len(self._tasks) == 1
        for i, task in enumerate(self._tasks):
            if task.handle is not None:
                continue  # started by run()
            try:
                flights.start(task, is_waited)
            except Exception as error:
                if i == 0:
                    raise
                for rest in self._tasks[i:]:
                    rest.owner = None
                self._fail(error)
                break
        return self

    # ---- the end ----

    def _part_done(self, error: Exception | None) -> None:
        with self._lock:
            self._left -= 1
            is_last = self._left == 0
        if error is not None:
            self._fail(error)
        elif is_last:
            try:
                if self._at_end is not None and not self._is_done:
                    self._at_end(self._tasks)
            except Exception as failure:
                error = failure
            self._complete(error)

    def _fail(self, error: Exception) -> None:
        self._complete(error)

    def _complete(self, error: Exception | None) -> None:
        with self._lock:
            if self._is_done:
                return
            self._error = error
            self._is_done = True
            ended = self._ended
            listeners, self._listeners = self._listeners, []
        self._at_end = None
        self._event.set()
        if ended is not None:
            ended.set_result(None)
        for listener in listeners:
            listener(self)

    def _then(self, listener: "Callable[[HorovodWork], None]") -> None:
        """Call a function when it has ended, at once if it has."""
        with self._lock:
            if not self._is_done:
                self._listeners.append(listener)
                return
        listener(self)

    def _timeout_error(self) -> Exception:
        waited_s = time.monotonic() - self.started
        return make_error(
            f"{self.what}: Timed out after {waited_s:.1f} s waiting for the other ranks "
            f"(timeout {self.limit_s} s). {self._missing()}",
            native.ERR_TIMEOUT,
        )

    def _missing(self) -> str:
        for task in self._tasks:
            if task.is_done:
                continue
            if task.handle is None:
                return "An earlier operation of the same kind has not ended yet."
            with contextlib.suppress(Exception):
                # The first sentence speaks of the handle and a limit of 0 ms.
                return native.missing(task.handle).partition(" ms.")[2].strip()
        return ""

    # ---- for scripts ----

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Wait for the end; True, or the exception of the operation."""
        try:
            return self._wait(timeout)
        except BaseException:
            if not self._is_done:
                flights.adopt(self._tasks)
            raise

    def _wait(self, timeout: timedelta | None) -> bool:
        limit_s = _seconds(timeout)
        deadline = self.deadline if limit_s is None else time.monotonic() + limit_s
        for task in self._tasks:
            while not task.is_done and not self._is_done:
                if deadline is not None and time.monotonic() >= deadline:
                    if limit_s is not None:
                        self.limit_s = limit_s
                    raise self._timeout_error()
                self._wait_for(task, deadline)
        left_s = None if deadline is None else max(deadline - time.monotonic(), 0.0)
        if not self._event.wait(left_s):
            raise self._timeout_error()
        if self._error is not None:
            raise self._error
        return True

    def _wait_for(self, task: Task, deadline: float | None) -> None:
        """Drive the core until the task has ended, for a while."""
        handle = task.handle
        if handle is None or not task.claim.acquire(blocking=False):
            self._event.wait(0.001)  # queued behind another, or another thread waits for it
            return
        try:
            limit_ms = _SLICE_MS
            if deadline is not None:
                limit_ms = min(limit_ms, max(int((deadline - time.monotonic()) * 1000) + 1, 0))
            if not task.is_done and native.have_ended([handle], limit_ms):
                flights.settle(task)
        finally:
            task.claim.release()
        if not task.is_done and task.is_told and task.claim.acquire(blocking=False):
            try:
                flights.settle(task)
            finally:
                task.claim.release()

    def synchronize(self) -> None:
        """The same as wait()."""
        self.wait()

    def is_completed(self) -> bool:
        """Has it ended, in good order or not? Never blocks."""
        return self._is_done

    def is_success(self) -> bool:
        """Has it ended in good order?"""
        return self._is_done and self._error is None

    def exception(self) -> Exception | None:
        """Why it failed; None if it did not, or has not ended."""
        return self._error

    def result(self) -> Any:
        """The tensors of the result, once it is there."""
        self.wait()
        return self.outputs

    def source_rank(self) -> int:
        """The rank in the group that a message was received from."""
        self.wait()
        return self._tasks[0].result if self._tasks else -1

    _source_rank = source_rank

    def get_future(self) -> torch.futures.Future:
        """A future with the tensors of the result; its callbacks run when the operation ends."""
        late = None
        with self._lock:
            if self._future is None:
                self._ended = torch.futures.Future()
                self._future = self._ended.then(self._value)
                late = self._ended if self._is_done else None
            future = self._future
        if late is not None:
            late.set_result(None)
        return future

    def _value(self, ended: torch.futures.Future) -> Any:
        # set_exception() would make the exception the value of the future, which C++ takes for
        # tensors: DDP crashes. What a callback raises is an error there, too.
        if self._error is not None:
            raise self._error
        return self.outputs


class EndedWork(HorovodWork):
    """A collective that ended before its call returned."""

    limit_s = deadline = None
    started = 0.0
    _tasks: list[Task] = []
    _future = _ended = None
    _is_done = True
    _lock = threading.Lock()

    def __init__(self, what: str, outputs: Any, error: Exception | None) -> None:
        _BaseWork.__init__(self)
        self.what = what
        self.outputs = outputs
        self._error = error

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Wait for the end; True, or the exception of the operation."""
        if self._error is not None:
            raise self._error
        return True
