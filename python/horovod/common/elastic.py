# SPDX-License-Identifier: Apache-2.0
"""State that survives lost and added workers, and the loop that uses it.

A *generation* is one world of ranks. When a worker is lost, every collective of the others raises
HorovodInternalError; when workers are added or removed, `state.commit()` raises
HostsUpdatedInterrupt on all ranks at the same step. In both cases run_fn() shuts Horovod down,
starts it again in the next generation and calls the training function again.

Each change of the set of workers has a number, the *notice version*. The launcher writes it into
memory that this process maps; a generation knows up to which version its members account for the
changes. So a change is seen once: neither two changes within a second, nor one that comes before
the first commit, are lost.

Without an elastic launcher (plain horovodrun, mpirun, srun, one process) no worker is ever added or
removed, and everything here works without a reset. Start reading at run_fn().
"""

import array
import contextlib
import functools
import logging
import os
import queue
import signal
import threading
from collections.abc import Callable, Sequence
from typing import Any

from horovod.common import process_sets as _process_sets
from horovod.common.exceptions import (
    HorovodInternalError,
    HostsUpdatedInterrupt,
    WorkerRemovedExit,
)
from horovod.common.handles import Handles
from horovod.common.library import native
from horovod.runner.elastic.worker import HostUpdateResult, WorkerNotificationManager

notification_manager = WorkerNotificationManager()

_log = logging.getLogger("horovod.elastic")
_handles = Handles()
_root = 0  # the rank whose state the others take over


def is_elastic() -> bool:
    """May workers be added and removed in this job?"""
    return native.is_initialized() and bool(native.generation()["is_elastic"])


def leave() -> bool:
    """Ask to leave the job: finish the step, be left out of the next generation, exit with code 0.

    The others go on without a rollback. Returns at once, and may be called in a signal handler or
    another thread; the wish takes effect at the next `state.commit()` or
    `state.check_host_updates()`. False: this job is not elastic, and nothing happens.
    """
    if not is_elastic():
        return False
    native.leave_request()
    return True


class State:
    """What training must not lose. Subclasses say how to save, restore and share it.

    bcast_object(obj) returns rank 0's object on all ranks; get_rank() is this process's rank.
    """

    _is_saving = True  # does commit() save? Not in a loop that never rolls back

    def __init__(self, bcast_object, get_rank):
        self._bcast_object = bcast_object
        self._rank = get_rank
        self._host_messages = queue.Queue()
        self._last_updated_timestamp = 0
        self._reset_callbacks = []
        self._leave_callbacks = []

    def register_reset_callbacks(self, callbacks):
        """Functions to call after the set of workers has changed, on every worker that stays."""
        self._reset_callbacks.extend(callbacks)

    def register_leave_callbacks(self, callbacks):
        """Functions to call on a worker that leaves, before it exits: to write a checkpoint, say.

        The state is that of the last commit. Horovod is shut down by then.
        """
        self._leave_callbacks.extend(callbacks)

    def on_reset(self):
        """After the set of workers has changed; called by the loop."""
        self._host_messages = queue.Queue()
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def on_leave(self):
        """Before this worker exits because it was removed; called by the loop."""
        for callback in self._leave_callbacks:
            callback()

    def on_hosts_updated(self, timestamp, update_res):
        """A change of the set of workers: its version number and HostUpdateResult."""
        self._host_messages.put((timestamp, update_res))

    def commit(self):
        """Save, and see whether the set of workers has changed. Collective."""
        if self._is_saving:
            self.save()
        self.check_host_updates()

    def check_host_updates(self):
        """Raise HostsUpdatedInterrupt on all ranks if rank 0 knows of a change. Collective."""
        previous = max(self._last_updated_timestamp, native.generation()["notice"])
        version, flags = native.notice(previous)
        if version > previous:
            self.on_hosts_updated(version, HostUpdateResult(flags & HostUpdateResult.mixed))
        last, update = previous, HostUpdateResult.no_update
        while not self._host_messages.empty():
            timestamp, change = self._host_messages.get()
            if timestamp > previous:
                last = max(last, timestamp)
                update |= change
        previous, last, update = self._agree_on_updates(previous, last, update)
        self._last_updated_timestamp = last
        if last > previous:
            raise HostsUpdatedInterrupt(update == HostUpdateResult.removed)

    def _agree_on_updates(self, previous, last, update):
        """Rank 0's numbers on all ranks."""
        return self._bcast_object((previous, last, update))

    def save(self):
        """Keep the present state, to come back to it."""
        raise NotImplementedError

    def restore(self):
        """Go back to what was saved last."""
        raise NotImplementedError

    def sync(self):
        """Take over the state of the rank sync_root(). Collective."""
        raise NotImplementedError

    def discard(self):
        """Forget the half of a step that failed, where the state itself is kept."""

    def reset(self):
        """Adapt to the new set of workers."""


class QuickCheck:
    """For states of frameworks: check_host_updates() takes one small broadcast, no pickles."""

    def _agree_on_updates(self, previous, last, update):
        return broadcast_numbers((previous, last, int(update)), "elastic.notice")


class ObjectState(State):
    """Plain Python values as attributes: `ObjectState(bcast, rank, batch=0, epoch=0)`."""

    def __init__(self, bcast_object, get_rank, **kwargs):
        self._saved_state = kwargs
        self._set_attrs()
        super().__init__(bcast_object=bcast_object, get_rank=get_rank)

    def save(self):
        self._saved_state = {name: getattr(self, name) for name in self._saved_state}

    def restore(self):
        self._set_attrs()

    def sync(self):
        if self._saved_state:
            current = {name: getattr(self, name) for name in self._saved_state}
            self._saved_state = self._bcast_from_root(current)
            self._set_attrs()

    def _bcast_from_root(self, value):
        root = sync_root()
        return self._bcast_object(value, root_rank=root) if root else self._bcast_object(value)

    def _set_attrs(self):
        for name, value in self._saved_state.items():
            setattr(self, name, value)


# ---- agreement ----

_IS_PRESENT, _WANTS_SYNC, _HAS_STATE = 1, 2, 4


def sync_root() -> int:
    """The rank whose state `state.sync()` gives to the others: the oldest that has one."""
    return _root


def _combine(kind, numbers, name):
    """One collective on integers, in place of a framework's tensors."""
    view = (numbers.buffer_info()[0], native.INT64, (len(numbers),))
    handle = _handles.start(
        *(kind, name, 0, native.SUM, 1.0, 1.0, 0, view, view, None, 0, (None, numbers))
    )
    return _handles.synchronize(handle).tolist()


def exchange_numbers(number: int, name: str) -> list[int]:
    """The integer of each rank, by rank. Collective."""
    size = native.size()
    if size <= 1:  # also before init
        return [number]
    numbers = array.array("q", bytes(8 * size))
    numbers[native.rank()] = number
    return _combine(native.ALLREDUCE, numbers, name)


def broadcast_numbers(numbers: Sequence[int], name: str) -> list[int]:
    """Rank 0's integers on all ranks: much cheaper than an object. Collective."""
    if native.size() <= 1:
        return list(numbers)
    return _combine(native.BROADCAST, array.array("q", numbers), name)


def _agree_on_sync(wants_sync, has_state):
    """Does any rank need the state of another? Then all take part, and know whose it is.

    A worker that has just come needs it, though those that were there before may not know of it.
    """
    global _root
    word = _IS_PRESENT | _WANTS_SYNC * bool(wants_sync) | _HAS_STATE * bool(has_state)
    words = exchange_numbers(word, "elastic.sync")
    holders = [rank for rank, word in enumerate(words) if word & _HAS_STATE]
    _root = holders[0] if holders else 0
    return any(word & _WANTS_SYNC for word in words)


# ---- leaving ----


@contextlib.contextmanager
def _polite_leaving():
    """SIGTERM asks to leave instead of killing the process, if the script has no other wish.

    A second SIGTERM kills.
    """
    is_ours = (
        is_elastic()
        and threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    )
    if not is_ours:
        yield
        return

    def on_signal(number, frame):
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        leave()

    signal.signal(signal.SIGTERM, on_signal)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


# ---- the loop ----


class _Loop:
    """One call of a training function, over as many generations as there are."""

    def __init__(self, state, reset, rollback, translate):
        self.state = state
        self.reset = reset
        self.rollback = rollback
        self.translate = translate
        self.wants_sync = True
        self.has_state = False
        self.is_syncing = False
        # mpirun and others neither replace a rank that was lost nor end the job while we wait for
        # it; horovodrun does one or the other. A single process waits for nobody.
        is_alone = not native.is_initialized() or native.size() == 1
        self.can_meet_again = is_alone or is_elastic() or "HOROVOD_RANK" in os.environ

    def begin(self):
        """In a generation: take over the state of the oldest rank if any rank needs it."""
        if not _agree_on_sync(self.wants_sync, self.has_state):
            return
        if self.has_state and not self.rollback:
            self.state.save()  # the source may die while its state arrives
        self.is_syncing = True
        self.state.sync()
        self.is_syncing = False
        self.has_state = True

    def meet_again(self):
        """Leave this generation and enter the next."""
        self.reset()
        self.state.on_reset()

    def on_failure(self):
        """A worker was lost, or a collective failed for another reason."""
        if self.rollback or self.is_syncing:
            self.state.restore()
        else:
            self.state.discard()
        self.is_syncing = False
        self.wants_sync = True

    def run(self, func, args, kwargs):
        """Repeat func until it returns or raises something that is none of our business."""
        is_first = True
        while True:
            try:
                if not is_first:
                    self.meet_again()
                self.begin()
                return func(self.state, *args, **kwargs)
            except HostsUpdatedInterrupt as interrupt:
                self.wants_sync = not interrupt.skip_sync
            except WorkerRemovedExit:
                self.state.on_leave()
                raise
            except Exception as error:
                failure = self._as_failure(error)
                if failure is None or not self.can_meet_again:
                    raise
                _log.warning("A collective failed; the workers meet again: %s", failure)
                self.on_failure()
            is_first = False

    def _as_failure(self, error):
        """The failure of a collective that an exception tells of, or None."""
        if isinstance(error, HorovodInternalError):
            return error
        return self.translate(error) if self.translate is not None else None


def run_fn(func, reset, rollback=True, translate=None):
    """Make func(state, ...) start anew whenever workers were lost or added.

    reset() shuts Horovod down and starts it again. With rollback=False the state is not set back
    to the last commit when a worker is lost, and commit() does not save. translate(error) returns
    the HorovodInternalError that a framework's exception stands for, or None.
    """

    @functools.wraps(func)
    def wrapper(state, *args, **kwargs):
        notification_manager.init()
        notification_manager.register_listener(state)
        state._is_saving = rollback
        try:
            with _polite_leaving():
                return _Loop(state, reset, rollback, translate).run(func, args, kwargs)
        finally:
            notification_manager.remove_listener(state)

    return wrapper


def given_process_sets():
    """What a reset hands to init(): the process sets that the script has given to init()."""
    return list(_process_sets._given)


def make_run(reset, translate=None, module=None):
    """The decorator `run` of a framework's package `module`; see run_fn() for the arguments."""

    def run(func: Callable | None = None, *, rollback: bool = True) -> Any:
        """Make a training function func(state, ...) start anew when workers are lost or added.

        Use it as `@hvd.elastic.run`, or as `@hvd.elastic.run(rollback=False)`: then a lost worker
        does not set the others back to the last commit. They go on from where the oldest of them
        stands, and repeat at most the step that failed. For this, the training function changes
        the state only after the last collective of a step.
        """
        if func is None:
            return lambda function: run_fn(function, reset, rollback, translate)
        return run_fn(func, reset, rollback, translate)

    run.__module__ = module or __name__
    return run
