# SPDX-License-Identifier: Apache-2.0
"""Eager collectives of several threads: none may be combined with another thread's.

An eager call without a name has that of its op, so calls of two threads would be told apart only by
the order in which they start, which each rank has for itself. Therefore threads have roles. The
main thread, and threads that Python did not start (those of tf.py_function), have none; any other
thread's role is its name, if it was given one, or the function it runs. Numbers in names do not
count: they may be of the process, or of the order in which threads were made. The role is part of
the name of a call. Threads of one role that live side by side can't be told apart: their calls need
names (`name=`), and without one they fail.
"""

import re
import threading
import weakref

import tensorflow as tf

_lock = threading.Lock()
_users = {}  # role -> threads of a pool that made calls without names
_refused = {}  # role -> the threads that ran side by side when a call was refused


def _is_of_pool(target):
    return getattr(target, "__module__", "") == "concurrent.futures.thread"


def _role_of(thread):
    target = getattr(thread, "_target", None)
    if _is_of_pool(target) or not re.match(r"Thread-\d+", thread.name):
        return re.sub(r"[-_.]?\d+", "", thread.name) or "thread"
    named = target if hasattr(target, "__qualname__") else type(thread)
    return f"{named.__module__}.{named.__qualname__}"


def _rivals(role, thread):
    """Other live threads whose calls can't be told from this one's."""
    if not _is_of_pool(getattr(thread, "_target", None)):
        others = [t for t in threading.enumerate() if _is_plain(t) and _role_of(t) == role]
    else:
        # Most threads of a pool have nothing to do with us: only those that called.
        others = _users.setdefault(role, weakref.WeakSet())
        others.add(thread)
    others = [t for t in others if t is not thread and t.is_alive()]
    if others:
        _refused[role] = weakref.WeakSet([thread, *others])
    # A thread that was refused once stays so: its rival may have failed, and the other ranks wait.
    elif thread in _refused.get(role, ()):
        others = [thread]
    return others


def _is_plain(thread):
    return thread is not threading.main_thread() and not isinstance(thread, threading._DummyThread)


def role():
    """What tells the calls of this thread apart; empty in the main thread. Eager mode only."""
    thread = threading.current_thread()
    if not _is_plain(thread):
        return ""
    own = _role_of(thread)
    with _lock:
        rivals = _rivals(own, thread)
    if rivals:
        raise tf.errors.InvalidArgumentError(
            None,
            None,
            "Requested to allreduce, allgather, or broadcast a tensor with the same name as "
            "another tensor that is currently being processed.  If you want to request another "
            f"tensor, use a different tensor name. (Several threads are called or run {own}: give "
            "each call a name= that is the same on all ranks, or each thread a name of its own.)",
        )
    return own


def named(name):
    """A name that the library chose, as the call of this thread has it."""
    own = role() if tf.executing_eagerly() else ""
    return f"{name}.{own}" if own else name
