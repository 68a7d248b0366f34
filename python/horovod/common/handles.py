# SPDX-License-Identifier: Apache-2.0
"""Operations in flight: their handles, their names, and what must stay alive until they end.

Every framework's package has one Handles object. A handle is the number that the core gave; the
object remembers for each of them an entry, a tuple

    (finish, tensors that the core reads or writes ..., result)

`finish` is a function of the handle that makes the result, or None if the last member is it. The
core borrows the memory of tensors from submit to completion, so an entry is dropped only when the
core has said that the operation ended: waited for, abandoned and seen to have ended, or shut down.

Threads: any; each step is one operation on a dict, which the GIL makes atomic. Of several threads
that wait for one handle one gets the result, and the others None, all of them after the end.
After a fork the library says that it is not initialised, and so does every handle here.
Start reading at `start` and `synchronize`.
"""

import time
import weakref
from collections.abc import Callable, Iterable
from typing import Any

from horovod.common.exceptions import HorovodInternalError
from horovod.common.library import native

_submit, _submit_group = native.submit, native.submit_group
_finish, _wait, _release = native.finish, native.wait, native.release
_StatusError = native.StatusError
_LOOK_S = 0.002

_SHUT_DOWN_TEXT = (
    "Horovod has been shut down. This was caused by an exception on one of the ranks or an attempt "
    "to allreduce, allgather or broadcast a tensor after one of the ranks finished execution. If "
    "the shutdown was caused by an exception, you should see the exception in the log before the "
    "first shutdown message."
)

Finish = Callable[[int], Any]


def op_name(prefix: str, name: str | None) -> str | None:
    """The name of an operation among all ranks; None lets the core number it.

    A name that begins with a slash means the same in every framework's package: what follows it,
    without a prefix. Ranks with different frameworks meet under such names.
    """
    if not name:
        return None
    try:
        return name[1:] if name[0] == "/" else prefix + name
    except TypeError:
        name.encode  # noqa: B018 - names are str: the error that scripts know
        raise


def member_name(name: str, index: int, count: int) -> str:
    """The name of one member of a group."""
    return f"{name}_{index + 1}of{count}"


def group_names(prefix: str, name: str | None, count: int) -> list[str] | None:
    """The names of the members of a group; None lets the core number them."""
    full = op_name(prefix, name)
    if full is None:
        return None
    return [member_name(full, index, count) for index in range(count)]


def set_id(process_set: Any) -> int:
    """The id of a process set; ValueError while it has none."""
    process_set_id = process_set.process_set_id
    if process_set_id is None:
        raise ValueError(
            f"{process_set} has not been registered: pass it to hvd.init(process_sets=...) or "
            "hvd.add_process_set() first."
        )
    return process_set_id


class Handles:
    """The operations that one framework's package has in flight.

    fail: makes the exception to raise from a native.StatusError, which has the status.
    """

    __slots__ = ("__weakref__", "_abandoned", "_fail", "_kept", "_polled", "_stale", "entries")

    def __init__(self, fail: Callable[[Exception], Exception] = HorovodInternalError) -> None:
        self._fail = fail
        self.entries: dict[int, tuple] = {}
        # Nobody can ask for these any more, but they may still be running: {handle: what they use}
        self._abandoned: dict[int, Any] = {}
        # What operations use that have no handle any more; until shutdown.
        self._kept: list[Any] = []
        # Handles of a life that has ended: True if the operation had not succeeded by then.
        self._stale: dict[int, bool] = {}
        self._polled: int | None = None
        _tables.add(self)

    def __len__(self) -> int:
        return len(self.entries)

    # ---- start ----

    def start(
        self,
        kind: int,
        name: str | None,
        process_set_id: int,
        op: int,
        prescale: float,
        postscale: float,
        root: int,
        tensor: Any,
        output: Any,
        splits: Any,
        flags: int,
        entry: tuple,
    ) -> int:
        """Hand one operation to the core; returns its handle.

        Raises ValueError for wrong arguments, native.TensorError (a ValueError) for a tensor that
        the core can't read where it lies, and what `fail` makes of any other status.
        """
        try:
            handle = _submit(
                kind,
                name,
                process_set_id,
                op,
                prescale,
                postscale,
                root,
                tensor,
                output,
                splits,
                flags,
            )
        except _StatusError as error:
            raise self._fail(error) from None  # the context stays: scripts look at it
        except ValueError as error:
            if not self._gives_name_back(error):
                raise
            arguments = (kind, name, process_set_id, op, prescale, postscale, root, tensor)
            return self.start(*arguments, output, splits, flags, entry)
        self.entries[handle] = entry
        return handle

    def start_group(
        self,
        kind: int,
        names: list[str] | None,
        process_set_id: int,
        op: int,
        prescale: float,
        postscale: float,
        inputs: list,
        outputs: list | None,
        flags: int,
        entry: tuple,
    ) -> int:
        """The same for operations that become ready together; one handle for all of them."""
        try:
            handle = _submit_group(
                kind, names, process_set_id, op, prescale, postscale, inputs, outputs, flags
            )
        except _StatusError as error:
            raise self._fail(error) from None
        self.entries[handle] = entry
        return handle

    def then(self, handle: int, change: Callable[[Any], Any]) -> int:
        """Let `change` see the result of an operation when it is waited for."""
        finish, *used = self.entries[handle]
        result = used[-1]

        def changed(handle: int) -> Any:
            value = result if finish is None else finish(handle)
            change(value)
            return value

        self.entries[handle] = (changed, *used)
        return handle

    # ---- wait ----

    def synchronize(self, handle: int) -> Any:
        """Wait until an operation has ended and return its result; None for an unknown handle."""
        entry = self.entries.pop(handle, None)
        if entry is None:
            return self._synchronize_unknown(handle)
        finish = entry[0]
        try:
            if finish is None:
                _finish(handle)
                return entry[-1]
            _wait(handle)
        except _StatusError as error:
            raise self._fail(error) from None
        except ValueError:
            raise
        except BaseException:
            self.entries[handle] = entry  # interrupted: it still runs, and can be waited for again
            raise
        try:
            return finish(handle)
        finally:
            _release(handle)

    def _synchronize_unknown(self, handle: int) -> None:
        has_failed = self._stale.get(handle)
        if has_failed is False:
            raise ValueError(f"Handle {handle} was not created or has been cleared.")
        if has_failed:
            del self._stale[handle]
            try:
                raise RuntimeError(_SHUT_DOWN_TEXT)
            except RuntimeError as error:
                raise self._fail(error) from None
        while self._is_waited_for(handle):
            time.sleep(_LOOK_S)

    def poll(self, handle: int) -> bool:
        """Has the operation ended, well or badly? After True, `synchronize` does not block.

        The first question about the operation that was started last is always answered with no:
        programs rely on starting being asynchronous, however fast the core is.
        """
        if handle not in self.entries:
            return self._poll_unknown(handle)
        is_done = native.poll(handle)
        if handle != self._polled and handle == self._newest():
            self._polled = handle
            return False
        return is_done

    def _newest(self) -> int | None:
        try:
            return next(reversed(self.entries))
        except (RuntimeError, StopIteration):
            return None  # another thread has just added or removed one

    def _is_waited_for(self, handle: int) -> bool:
        """Is another thread waiting for it, which has taken its entry?"""
        try:
            return native.status(handle) == native.IN_PROGRESS and handle not in self._abandoned
        except (OverflowError, TypeError):
            return False  # not a handle at all

    def _poll_unknown(self, handle: int) -> bool:
        if self._stale.get(handle):
            return True
        if handle not in self._stale and self._is_waited_for(handle):
            return False
        raise ValueError(f"Handle {handle} was not created or has been cleared.")

    # ---- give up ----

    def abandon(self, handles: Iterable[int], *used: Any) -> None:
        """Nobody will wait for these. What they use stays alive until they have ended.

        used: what the core reads and writes for handles that have no entry here.
        """
        for handle in list(handles):
            self._abandoned[handle] = self.entries.pop(handle, used)
        self._sweep()

    def keep(self, *used: Any) -> None:
        """Keep something alive until shutdown."""
        self._kept.append(used)

    def _sweep(self) -> bool:
        """Forget what has ended; False if nothing has."""
        has_found = False
        for handle in list(self._abandoned):
            if native.poll(handle) and self._abandoned.pop(handle, None) is not None:
                _release(handle)
                has_found = True
        return has_found

    def _gives_name_back(self, error: Exception) -> bool:
        """Was a name taken by an operation that nobody waits for, and that has ended by now?"""
        return getattr(error, "status", None) == native.ERR_DUPLICATE and self._sweep()

    # ---- life ----

    def begin(self) -> None:
        """After init(): handles from before are not known any more."""
        self._polled = None
        self._stale.clear()
        self.abandon(self.entries)

    def _end(self) -> None:
        """Before shutdown: what has not succeeded by now will have failed."""
        for handle in list(self.entries):
            self._stale.setdefault(handle, native.status(handle) != 0)

    def _clear(self) -> None:
        """After shutdown: the core uses nothing any more."""
        for handle in list(self.entries):
            self._stale.setdefault(handle, True)
            self.entries.pop(handle, None)
        self._abandoned.clear()
        self._kept.clear()


_tables: "weakref.WeakSet[Handles]" = weakref.WeakSet()


def begin_life() -> None:
    """The core has been started: numbers of handles start anew."""
    for table in list(_tables):
        table._abandoned.clear()
        table.begin()


def end_life(shutdown: Callable[[], None]) -> None:
    """Shut the core down, whichever package asked for it; no handle outlives it."""
    tables = list(_tables)
    for table in tables:
        table._end()
    shutdown()
    for table in tables:
        table._clear()
