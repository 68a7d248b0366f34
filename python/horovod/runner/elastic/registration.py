# SPDX-License-Identifier: Apache-2.0
"""How each worker of a generation has ended it, and what follows from that.

Each worker ends its generation by one record: READY (it asks for its next place), SUCCESS or
FAILURE (it has exited). Whoever records waits until all have; then one of the waiting threads
decides. A worker that was READY and then fails replaces its record. A worker that has no record a
long time (the driver's timeout) after the first one came is hung, and counts as failed.
"""

import logging
import threading
import time

from horovod.runner.elastic import constants

READY = "READY"
SUCCESS = "SUCCESS"
FAILURE = "FAILURE"

_LOOK_S = 0.5  # how often a waiting thread sees whether the driver has stopped

_log = logging.getLogger(__name__)


class WorkerStateRegistry:
    """The records of one generation after the other, and the decision when one is complete."""

    def __init__(self, driver, host_manager, reset_limit=None, verbose=False):
        self._driver = driver
        self._host_manager = host_manager
        self._reset_limit = reset_limit
        self._reset_count = 0
        self._verbose = verbose
        self._changed = threading.Condition()
        self._states = {}
        self._size = 0
        self._rendezvous_id = 0
        self._rendezvous_decided = 0
        self._is_deciding = False
        self._deadline = None

    def get_recorded_slots(self):
        """(host, slot) of all workers that have a record."""
        return self._states.keys()

    def get(self, state):
        """(host, slot) of the workers that are in this state."""
        return {key for key, recorded in self._states.items() if recorded == state}

    def count(self, state):
        return len(self.get(state))

    def reset(self, size):
        """A new generation of so many workers begins."""
        with self._changed:
            _log.info("reset workers: %d", size)
            self._states = {}
            self._size = size
            self._deadline = None
            self._rendezvous_id += 1
            self._changed.notify_all()

    def size(self):
        return self._size

    def last_rendezvous(self):
        """The number of the generation."""
        return self._rendezvous_id

    def record_ready(self, host, slot):
        return self._record_state(host, slot, READY)

    def record_success(self, host, slot):
        return self._record_state(host, slot, SUCCESS)

    def record_failure(self, host, slot):
        return self._record_state(host, slot, FAILURE)

    def _record_state(self, host, slot, state):
        """Record, wait for the decision; returns the generation that the record belongs to."""
        key = (host, slot)
        with self._changed:
            while self._is_deciding:  # the record is about the next generation
                self._changed.wait()
            if self._driver.finished():
                _log.info("driver finished, ignoring registration: %s = %s", key, state)
                return self._rendezvous_id
            if self._host_manager.is_blacklisted(host):
                _log.warning("%s is blacklisted, ignoring registration: %s", key, state)
                return self._rendezvous_id
            rendezvous_id = self._rendezvous_id
            if key in self._states and state != FAILURE:
                _log.error("%s is %s already, ignoring: %s", key, self._states[key], state)
            else:
                _log.info("record state: %s = %s", key, state)
                self._states[key] = state
                self._changed.notify_all()
            if not self._wait(key, state, rendezvous_id):
                return rendezvous_id
            self._is_deciding = True
        try:
            self._on_workers_recorded()
        finally:
            with self._changed:
                self._is_deciding = False
                self._rendezvous_decided = rendezvous_id
                self._changed.notify_all()
        return rendezvous_id

    def _wait(self, key, state, rendezvous_id):
        """True: all have a record, and the caller decides. False: there is a decision. With lock.

        RuntimeError: the worker has another record by now.
        """
        while self._rendezvous_decided < rendezvous_id and not self._driver.finished():
            if self._rendezvous_id == rendezvous_id and not self._is_deciding:
                if self._states[key] != state:
                    raise RuntimeError(f"State {state} overridden by {self._states[key]}")
                self._give_up_the_hung()
                if len(self._states) >= self._size:
                    return True
            self._changed.wait(_LOOK_S)
        return False

    def _give_up_the_hung(self):
        if self._deadline is None:
            self._deadline = time.monotonic() + self._driver.timeout_s()
        if time.monotonic() < self._deadline:
            return
        for host, slots in self._driver.host_assignments.items():
            for slot in slots:
                if (host, slot.local_rank) not in self._states:
                    _log.error("%s[%d] does not answer: it failed", host, slot.local_rank)
                    self._states[host, slot.local_rank] = FAILURE

    def _on_workers_recorded(self):
        """All workers have a record: go on or stop?"""
        _log.info("all %d workers recorded", self._size)
        if self.count(SUCCESS) > 0:
            _log.info("success count == %d -> stop running", self.count(SUCCESS))
            self._driver.stop()
            return
        if self.count(FAILURE) == self._size:
            _log.error("failure count == %d -> stop running", self._size)
            self._driver.stop()
            return
        for host in {host for host, _ in self.get(FAILURE)}:
            self._host_manager.blacklist(host)
        if all(self._host_manager.is_blacklisted(host) for host, _ in self._states):
            _log.error("blacklisted slots count == %d -> stop running", self._size)
            self._driver.stop()
            return
        if self._reset_limit is not None and self._reset_count >= self._reset_limit:
            _log.error("reset count %d has exceeded limit -> stop running", self._reset_count)
            message = constants.RESET_LIMIT_EXCEEDED_MESSAGE.format(self._reset_limit)
            self._driver.stop(error_message=message)
            return
        self._reset_count += 1
        try:
            self._driver.resume()
        except Exception:
            _log.exception("failed to activate new hosts -> stop running")
            self._driver.stop()
