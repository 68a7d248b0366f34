# SPDX-License-Identifier: Apache-2.0
"""Drives the workers of an elastic job that a program starts by its own means (threads, actors).

horovodrun has its own driver, in C. This one looks for hosts in a thread, places workers, has them
started by a function of the caller's, and tells rank 0 when hosts were added or removed.
"""

import itertools
import logging
import os
import queue
import threading

from horovod.runner.common.util import hosts, timeout
from horovod.runner.elastic.discovery import HostManager
from horovod.runner.elastic.registration import WorkerStateRegistry
from horovod.runner.elastic.worker import (
    PUT_WORKER_ADDRESSES,
    HostUpdateResult,
    WorkerNotificationClient,
)

DISCOVER_HOSTS_FREQUENCY_SECS = 1.0
ELASTIC_TIMEOUT_SECS = 600

_TWO_HOSTS = (
    " An elastic job also requires that at least two hosts are available to resolve compatible "
    "network interfaces. If you know which interfaces are compatible in your network, set "
    "`--network-interface` to skip this check."
)

_log = logging.getLogger(__name__)


class Results:
    """error_message: None, or why the job was stopped. worker_results: {"host[slot]": (code, time)}
    of the last generation."""

    def __init__(self, error_message, worker_results):
        self.error_message = error_message
        self.worker_results = worker_results


class ResultsRecorder:
    """Collects how workers have ended."""

    def __init__(self):
        self._error_message = None
        self._worker_results = {}
        self._worker_threads = queue.Queue()

    def expect(self, worker_thread):
        """get_results() waits for this thread."""
        self._worker_threads.put(worker_thread)

    def set_error_message(self, error_message):
        self._error_message = error_message

    def add_result(self, key, value):
        """The first result of a worker counts."""
        self._worker_results.setdefault(key, value)

    def get_results(self):
        """Wait for all workers; returns Results."""
        while not self._worker_threads.empty():
            self._worker_threads.get().join()
        return Results(self._error_message, self._worker_results)


class ElasticDriver:
    """rendezvous: a RendezvousServer; discovery: a HostDiscovery.

    timeout: seconds to wait for enough slots (HOROVOD_ELASTIC_TIMEOUT, else 600).
    """

    def __init__(
        self,
        rendezvous,
        discovery,
        min_num_proc,
        max_num_proc,
        timeout=None,
        reset_limit=None,
        cooldown_range=None,
        verbose=0,
    ):
        self._rendezvous = rendezvous
        self._host_manager = HostManager(discovery, cooldown_range)
        self._min_num_proc = min_num_proc
        self._max_num_proc = max_num_proc
        self._timeout = timeout or int(
            os.environ.get("HOROVOD_ELASTIC_TIMEOUT", ELASTIC_TIMEOUT_SECS)
        )
        self._verbose = verbose
        self._host_assignments = {}
        self._rank_assignments = {}
        self._create_worker_fn = None
        self._worker_clients = {}
        self._versions = itertools.count(1)
        self._results = ResultsRecorder()
        self._shutdown = threading.Event()
        self._worker_registry = WorkerStateRegistry(
            self, self._host_manager, reset_limit=reset_limit, verbose=verbose
        )
        self._wait_hosts_cond = threading.Condition()
        self._discovery_thread = threading.Thread(target=self._discover_hosts, daemon=True)
        self._discovery_thread.start()

    # ---- life ----

    def start(self, num_proc, create_worker_fn):
        """Wait for num_proc slots and start workers on all that there are, up to the maximum.

        create_worker_fn(slot_info, [event, event]) runs a worker until it ends or an event is set,
        and returns (exit code, time). It is called in a thread of its own for each worker.
        """
        self._create_worker_fn = create_worker_fn
        self._activate_workers(num_proc)

    def resume(self):
        """The next generation: as many as there are slots, but at least the minimum."""
        self._activate_workers(self._min_num_proc)

    def stop(self, error_message=None):
        """End all workers."""
        self._results.set_error_message(error_message)
        self._shutdown.set()
        self._rendezvous.stop()
        if threading.current_thread() is not self._discovery_thread:
            self._discovery_thread.join()

    def finished(self):
        return self._shutdown.is_set()

    def get_results(self):
        """Wait for all workers; returns Results."""
        return self._results.get_results()

    def timeout_s(self):
        """How long the driver waits for slots, and for workers that do not answer."""
        return self._timeout

    # ---- workers ----

    def register_worker_server(self, host, slot, addresses, secret_key):
        """Where this worker can be notified."""
        client = WorkerNotificationClient(addresses, secret_key, self._verbose)
        self._worker_clients[host, slot] = client

    def get_worker_client(self, slot_info):
        """What to notify a worker with, or None if it has not said where."""
        key = (slot_info.hostname, slot_info.local_rank)
        if key not in self._worker_clients:
            entry = self._look_up(PUT_WORKER_ADDRESSES, f"{key[0]}:{key[1]}")
            if entry is not None:
                self.register_worker_server(*key, *entry)
        return self._worker_clients.get(key)

    def _look_up(self, scope, name):
        """An object that a worker has put into the rendezvous."""
        import cloudpickle

        value = getattr(self._rendezvous, "get", lambda *_: None)(scope, name)
        return cloudpickle.loads(value) if isinstance(value, bytes) else None

    def record_ready(self, host, slot):
        """A worker asks for its next place; returns when it has one."""
        self._worker_registry.record_ready(host, slot)

    def world_size(self):
        return len(self._rank_assignments)

    def local_size(self, host):
        return len(self._host_assignments[host])

    def get_slot_info(self, host, slot):
        """The place of a worker; INVALID_SLOT_INFO if it has none any more."""
        if not self.has_rank_assignment(host, slot):
            return hosts.INVALID_SLOT_INFO
        return self._host_assignments[host][slot]

    def get_coordinator_info(self):
        """The place of rank 0, or None."""
        return self._rank_assignments.get(0)

    def has_rank_assignment(self, host, slot):
        if self._host_manager.is_blacklisted(host):
            return False
        return slot < len(self._host_assignments.get(host, ()))

    @property
    def host_assignments(self):
        """{host: [SlotInfo]}"""
        return self._host_assignments

    # ---- hosts ----

    def wait_for_available_slots(self, min_num_proc, min_hosts=1):
        """DiscoveredHosts with at least so many slots; TimeoutException if there are none in time.

        RuntimeError: the job has been stopped.
        """
        limit = timeout.Timeout(
            self._timeout,
            "Timed out waiting for {activity}. Please check that you have enough resources to run "
            f"at least {min_num_proc} Horovod processes.{_TWO_HOSTS if min_hosts > 1 else ''}",
        )
        with self._wait_hosts_cond:
            while True:
                current = self._host_manager.current_hosts
                has_slots = current.count_available_slots() >= min_num_proc
                if has_slots and len(current.available_hosts) >= min_hosts:
                    return current
                if self._shutdown.is_set():
                    raise RuntimeError(
                        "Job has been shutdown, see above error messages for details."
                    )
                self._wait_hosts_cond.wait(limit.remaining())
                limit.check_time_out_for("minimum number of slots to become available")

    def _discover_hosts(self):
        is_first = True
        while not self._shutdown.is_set():
            with self._wait_hosts_cond:
                try:
                    self._discover_once()
                except Exception as error:
                    if is_first:  # a misconfiguration: no use in trying again
                        _log.exception("Finding hosts failed")
                        self._shutdown.set()
                        self._wait_hosts_cond.notify_all()
                        return
                    _log.warning("Finding hosts failed, will try again: %s", error)
            is_first = False
            self._shutdown.wait(DISCOVER_HOSTS_FREQUENCY_SECS)

    def _discover_once(self):
        update = self._host_manager.update_available_hosts()
        if update != HostUpdateResult.no_update:
            self._notify_workers_host_changes(self._host_manager.current_hosts, update)
            self._wait_hosts_cond.notify_all()

    def _notify_workers_host_changes(self, current_hosts, update_res):
        """Tell rank 0, unless all places stay as they are."""
        places = {}
        if current_hosts.count_available_slots() >= self._min_num_proc:
            places = self._get_host_assignments(current_hosts)
        coordinator = self.get_coordinator_info()
        if places == self._host_assignments or not coordinator:
            return
        client = self.get_worker_client(coordinator)
        if not client:
            return
        try:
            client.notify_hosts_updated(next(self._versions), update_res)
        except Exception:
            _log.warning("rank 0 could not be told of changed hosts", exc_info=self._verbose >= 2)

    # ---- places ----

    def _activate_workers(self, min_num_proc):
        current = self.wait_for_available_slots(min_num_proc)
        pending = self._update_host_assignments(current)
        self._worker_registry.reset(self.world_size())
        for slot_info in pending:
            self._start_worker_process(slot_info)

    def _update_host_assignments(self, current_hosts):
        """Place the workers anew; returns the places for which there is no worker yet."""
        before = self._host_assignments
        places = self._get_host_assignments(current_hosts)
        if before and not before.keys() & places.keys():
            raise RuntimeError("No hosts from previous set remaining, unable to broadcast state.")
        self._host_assignments = places
        slots = sorted(itertools.chain(*places.values()), key=lambda slot: slot.rank)
        self._rank_assignments = {slot.rank: slot for slot in slots}
        self._rendezvous.init(slots)
        return [s for s in slots if s.local_rank >= len(before.get(s.hostname, ()))]

    def _get_host_assignments(self, current_hosts):
        infos = [
            hosts.HostInfo(host, current_hosts.get_slots(host))
            for host in current_hosts.host_assignment_order
        ]
        places = {}
        for slot in hosts.get_host_assignments(infos, self._min_num_proc, self._max_num_proc):
            places.setdefault(slot.hostname, []).append(slot)
        return places

    def _start_worker_process(self, slot_info):
        _log.info("start worker process: %s[%d]", slot_info.hostname, slot_info.local_rank)
        events = [self._shutdown, self._host_manager.get_host_event(slot_info.hostname)]

        def run_worker():
            self._handle_worker_exit(slot_info, *self._create_worker_fn(slot_info, events))

        thread = threading.Thread(target=run_worker, daemon=True)
        thread.start()
        self._results.expect(thread)

    def _handle_worker_exit(self, slot_info, exit_code, timestamp):
        host, slot = slot_info.hostname, slot_info.local_rank
        if not self.has_rank_assignment(host, slot):
            return  # it was removed, or its host is blacklisted
        record = (
            self._worker_registry.record_success
            if exit_code == 0
            else self._worker_registry.record_failure
        )
        generation = record(host, slot)
        if self.finished() and self._worker_registry.last_rendezvous() == generation:
            self._results.add_result(f"{host}[{slot}]", (exit_code, timestamp))
