# SPDX-License-Identifier: Apache-2.0
"""horovod.runner.elastic: discovery, blacklist, registry and the driver with its threads."""

import stat
import threading
import time
from unittest import mock

import pytest
from horovod.runner.common.util import timeout
from horovod.runner.elastic import constants, discovery, driver, registration, rendezvous, worker
from horovod.runner.elastic.discovery import (
    DiscoveredHosts,
    FixedHosts,
    HostDiscoveryScript,
    HostManager,
    HostState,
)
from horovod.runner.elastic.driver import ElasticDriver, ResultsRecorder
from horovod.runner.elastic.settings import ElasticSettings
from horovod.runner.elastic.worker import HostUpdateResult, WorkerNotificationManager
from horovod.runner.http.http_server import RendezvousServer

ADDED, REMOVED = HostUpdateResult.added, HostUpdateResult.removed
MIXED, NOTHING = HostUpdateResult.mixed, HostUpdateResult.no_update


@pytest.fixture(autouse=True)
def look_often(monkeypatch):
    monkeypatch.setattr(driver, "DISCOVER_HOSTS_FREQUENCY_SECS", 0.01)
    monkeypatch.setattr(registration, "_LOOK_S", 0.01)


@pytest.fixture
def make_driver():
    """make_driver(hosts or discovery, min, max, ...): a driver that is stopped in the end."""
    made = []

    def make(hosts, low, high, rendezvous=None, **options):
        found = FixedHosts(hosts) if isinstance(hosts, dict) else hosts
        made.append(ElasticDriver(rendezvous or mock.Mock(), found, low, high, **options))
        return made[-1]

    yield make
    for one in made:
        if not one.finished():
            one.stop()


# ---- names ----


def test_names():
    assert driver.ELASTIC_TIMEOUT_SECS == 600
    assert rendezvous.GET_RANK_AND_SIZE == "rank_and_size"
    assert rendezvous.PUT_WORKER_ADDRESSES == "worker_addresses"
    assert (registration.READY, registration.SUCCESS) == ("READY", "SUCCESS")
    assert registration.FAILURE == "FAILURE"
    assert MIXED == ADDED | REMOVED and NOTHING == 0
    assert discovery.DEFAULT_COOLDOWN_LOWER_LIMIT_SECONDS == 1
    assert discovery.DEFAULT_COOLDOWN_UPPER_LIMIT_SECONDS == 3600
    for name in ["HOROVOD_GLOO_RENDEZVOUS_PORT", "HOROVOD_LOCAL_RANK", "HOROVOD_HOSTNAME"]:
        assert getattr(worker, name) == name
    settings = ElasticSettings("d", 1, 2, 3, 4, (5, 6), num_proc=7)
    assert settings.elastic and settings.discovery == "d" and settings.num_proc == 7
    assert (settings.min_num_proc, settings.max_num_proc, settings.elastic_timeout) == (1, 2, 3)
    assert (settings.reset_limit, settings.cooldown_range) == (4, (5, 6))


# ---- discovery ----


def test_older_hosts_keep_their_order():
    order = HostManager.order_available_hosts(["a", "b", "c"], [])
    assert order == ["a", "b", "c"]
    assert HostManager.order_available_hosts(["d", "c", "b"], order) == ["b", "c", "d"]


def test_updates_and_immutable_hosts():
    found = mock.Mock()
    found.find_available_hosts_and_slots.side_effect = [
        {"a": 2},
        {"a": 2, "b": 2},
        {"b": 2},
        {"b": 1, "c": 1},
        {"b": 1, "c": 1},
    ]
    manager = HostManager(found)
    empty = manager.current_hosts
    assert empty.available_hosts == set() and empty.count_available_slots() == 0
    assert manager.update_available_hosts() == ADDED
    assert empty.available_hosts == set()
    first = manager.current_hosts
    assert first.host_assignment_order == ["a"] and first.count_available_slots() == 2
    assert manager.update_available_hosts() == ADDED
    assert first.available_hosts == {"a"}
    assert manager.current_hosts.host_assignment_order == ["a", "b"]
    assert manager.update_available_hosts() == REMOVED
    assert manager.update_available_hosts() == MIXED
    assert manager.update_available_hosts() == NOTHING
    last = manager.current_hosts
    assert last.get_slots("b") == 1 and last.get_slots("a") == 0
    assert last.host_slots == {"b": 1, "c": 1} and "b" in str(last)


def test_a_discovery_that_changes_its_dict_in_place():
    hosts = {"a": 1}
    manager = HostManager(FixedHosts(hosts))
    assert manager.update_available_hosts() == ADDED
    hosts["b"] = 1
    assert manager.update_available_hosts() == ADDED
    assert manager.update_available_hosts() == NOTHING


def test_blacklist_leaves_objects_alone_that_were_handed_out():
    manager = HostManager(FixedHosts({"a": 2, "b": 2}))
    manager.update_available_hosts()
    hosts, event = manager.current_hosts, manager.get_host_event("a")
    manager.blacklist("a")
    assert event.is_set() and manager.is_blacklisted("a") and not manager.is_blacklisted("b")
    assert hosts.available_hosts == {"a", "b"} and hosts.count_available_slots() == 4
    assert manager.current_hosts.host_assignment_order == ["b"]
    assert manager.current_hosts.count_available_slots() == 2
    assert not manager.get_host_event("a").is_set()
    assert manager.update_available_hosts() == NOTHING


def test_cooldown(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(discovery.time, "time", lambda: now[0])
    monkeypatch.setattr(discovery.random, "uniform", lambda a, b: 0.5)
    manager = HostManager(FixedHosts({"a": 1, "b": 1}), cooldown_range=(10, 50))
    manager.update_available_hosts()
    manager.blacklist("a")
    now[0] += 24
    manager.blacklist("a")  # does not make it longer
    assert manager.update_available_hosts() == NOTHING
    now[0] += 1  # 2 * 10 + 5
    assert manager.update_available_hosts() == ADDED
    assert not manager.is_blacklisted("a")
    assert manager.current_hosts.host_assignment_order == ["b", "a"]
    assert manager.update_available_hosts() == NOTHING
    manager.blacklist("a")
    now[0] += 44
    assert manager.update_available_hosts() == NOTHING
    now[0] += 1  # 4 * 10 + 5
    assert manager.update_available_hosts() == ADDED
    manager.blacklist("a")
    now[0] += 50  # 85 is too long
    assert manager.update_available_hosts() == ADDED


@pytest.mark.parametrize("bad", [(0, 10), (10, 3601)])
def test_bad_cooldown(bad):
    with pytest.raises(ValueError, match="Provided cooldown (lower|upper) limit"):
        HostState(bad)
    with pytest.raises(ValueError, match="Provided cooldown"):
        HostManager(FixedHosts({}), bad)


def make_script(tmp_path, text):
    path = tmp_path / "hosts.sh"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(stat.S_IRWXU)
    return str(path)


def test_script(tmp_path):
    text = "echo c:3; echo; echo a; echo ' b:2 '; echo a"
    hosts = HostDiscoveryScript(make_script(tmp_path, text), 4).find_available_hosts_and_slots()
    assert list(hosts.items()) == [("c", 3), ("a", 4), ("b", 2)]
    failing = HostDiscoveryScript(make_script(tmp_path, "exit 3"), 1)
    with pytest.raises(RuntimeError, match=r"^Failed to execute discovery script: .*Exit code: 3"):
        failing.find_available_hosts_and_slots()
    for text, slots in (("echo a:x", 1), ("echo a", None), ("echo a:1:2", 1)):
        with pytest.raises(ValueError, match="expected a line"):
            HostDiscoveryScript(make_script(tmp_path, text), slots).find_available_hosts_and_slots()


# ---- driver ----


def test_all_slots_are_used_and_places_are_told(make_driver):
    job = make_driver({"host-1": 2, "host-2": 2}, 2, 4)
    job.wait_for_available_slots(2)
    seen = {}

    def work(slot, events):
        job.record_ready(slot.hostname, slot.local_rank)
        again = job.get_slot_info(slot.hostname, slot.local_rank)
        seen[slot.rank] = (slot.to_response_string(), again.to_response_string())
        return 0, time.time()

    job.start(2, work)
    results = job.get_results()
    assert {name: code for name, (code, _) in results.worker_results.items()} == {
        f"host-{h}[{s}]": 0 for h in (1, 2) for s in (0, 1)
    }
    assert results.error_message is None and job.finished()
    assert len(seen) == 4 and all(a == b for a, b in seen.values())


def test_a_failed_host_is_left_out_and_its_workers_are_stopped(make_driver):
    job = make_driver({"host-1": 2, "host-2": 2}, 2, 4)
    seen, stopped = {}, []

    def work(slot, events):
        job.record_ready(slot.hostname, slot.local_rank)  # all four meet
        if (slot.hostname, slot.local_rank) == ("host-1", 0):
            return 1, time.time()
        again = threading.Thread(target=job.record_ready, args=(slot.hostname, slot.local_rank))
        again.start()
        again.join()
        if slot.hostname == "host-1":
            stopped.append(events[1].wait(20))
            return 1, time.time()
        seen[slot.local_rank] = job.get_slot_info(slot.hostname, slot.local_rank)
        return 0, time.time()

    job.start(2, work)
    results = job.get_results().worker_results
    assert {name: code for name, (code, _) in results.items()} == {"host-2[0]": 0, "host-2[1]": 0}
    assert {slot: info.rank for slot, info in seen.items()} == {0: 0, 1: 1}
    assert stopped == [True]
    assert not job.has_rank_assignment("host-1", 0)
    assert job.get_slot_info("host-1", 0).rank == -1


def test_all_fail(make_driver):
    job = make_driver({"host-1": 2, "host-2": 2}, 2, 4)

    def work(slot, events):
        job.record_ready(slot.hostname, slot.local_rank)
        return 1, time.time()

    job.start(2, work)
    results = job.get_results().worker_results
    assert len(results) == 4 and all(code == 1 for code, _ in results.values())


def start_failing(job):
    """Two workers: rank 0 fails once it is ready, the other when it has come back."""

    def work(slot, events):
        job.record_ready(slot.hostname, slot.local_rank)
        if slot.rank == 0:
            return 1, time.time()
        job.record_ready(slot.hostname, slot.local_rank)
        return 1, time.time()

    job.start(2, work)


def test_all_hosts_blacklisted(make_driver):
    job = make_driver({"host-1": 1, "host-2": 1}, 1, 4)

    start_failing(job)
    job.get_results()
    assert job.finished()


def test_reset_limit(make_driver):
    job = make_driver({"host-1": 1, "host-2": 1}, 1, 2, reset_limit=0)

    start_failing(job)
    message = job.get_results().error_message
    assert message == constants.RESET_LIMIT_EXCEEDED_MESSAGE.format(0)


def test_a_ready_worker_that_fails_replaces_its_record():
    boss = mock.Mock(**{"finished.return_value": False, "timeout_s.return_value": 600})
    manager = HostManager(FixedHosts({"a": 2, "b": 1}))
    registry = registration.WorkerStateRegistry(boss, manager)
    registry.reset(2)
    trouble = []

    def ready():
        try:
            registry.record_ready("a", 0)
        except RuntimeError as error:
            trouble.append(str(error))

    first = threading.Thread(target=ready)
    first.start()
    while registry.count(registration.READY) == 0:
        time.sleep(0.01)
    second = threading.Thread(target=registry.record_failure, args=("a", 0))
    second.start()
    first.join(20)
    assert trouble == ["State READY overridden by FAILURE"]
    assert registry.count(registration.FAILURE) == 1 and registry.count(registration.READY) == 0
    boss.resume.assert_not_called()
    registry.record_ready("b", 0)
    second.join(20)
    boss.resume.assert_called_once_with()
    assert manager.is_blacklisted("a")


def test_a_hung_worker_counts_as_failed():
    boss = mock.Mock(**{"finished.return_value": False, "timeout_s.return_value": 0})
    boss.host_assignments = {"a": [mock.Mock(local_rank=0)], "b": [mock.Mock(local_rank=0)]}
    manager = HostManager(FixedHosts({"a": 1, "b": 1}))
    registry = registration.WorkerStateRegistry(boss, manager)
    registry.reset(2)
    registry.record_ready("a", 0)
    boss.resume.assert_called_once_with()
    assert manager.is_blacklisted("b") and not manager.is_blacklisted("a")


def test_too_few_slots(make_driver):
    job = make_driver({"a": 1}, 2, 4, timeout=1)
    text = "Timed out waiting for minimum number of slots to become available. Please check"
    with pytest.raises(timeout.TimeoutException, match=text):
        job.wait_for_available_slots(2)


def test_timeout_of_the_environment(make_driver, monkeypatch):
    monkeypatch.setenv("HOROVOD_ELASTIC_TIMEOUT", "77")
    assert make_driver({"a": 1}, 1, 1).timeout_s() == 77


def test_a_discovery_that_fails_at_first_ends_the_job(make_driver):
    found = mock.Mock()
    found.find_available_hosts_and_slots.side_effect = RuntimeError("no such script")
    job = make_driver(found, 1, 2)
    with pytest.raises(RuntimeError, match="Job has been shutdown, see above error messages"):
        job.wait_for_available_slots(1)


def test_a_discovery_that_fails_later_is_tried_again(make_driver):
    answers = iter([{"a": 1}, RuntimeError("busy"), RuntimeError("busy")])
    found = mock.Mock()
    found.find_available_hosts_and_slots.side_effect = lambda: next_of(answers)

    def next_of(items):
        item = next(items, {"a": 1, "b": 1})
        if isinstance(item, Exception):
            raise item
        return item

    job = make_driver(found, 1, 2)
    assert job.wait_for_available_slots(2).host_assignment_order == ["a", "b"]


def test_no_host_is_left_of_those_before(make_driver):
    hosts = FixedHosts({"a": 1, "b": 1})
    job = make_driver(hosts, 1, 2)
    job.wait_for_available_slots(2)
    job._update_host_assignments(DiscoveredHosts({"a": 1}, ["a"]))
    with pytest.raises(RuntimeError, match="^No hosts from previous set remaining"):
        job._update_host_assignments(DiscoveredHosts({"b": 1}, ["b"]))


def test_places_are_stable(make_driver):
    job = make_driver({"a": 1}, 1, 8)
    job.wait_for_available_slots(1)
    started = job._update_host_assignments(DiscoveredHosts({"a": 2, "b": 2}, ["a", "b"]))
    assert [(s.hostname, s.local_rank) for s in started] == [("a", 0), ("a", 1), ("b", 0), ("b", 1)]
    started = job._update_host_assignments(DiscoveredHosts({"b": 2, "c": 1}, ["b", "c"]))
    assert [(s.hostname, s.rank, s.local_rank) for s in started] == [("c", 2, 0)]
    assert job.get_slot_info("b", 1).to_response_string() == "1,3,1,2,0,1"
    assert job.get_slot_info("a", 0).rank == -1
    assert job.get_coordinator_info().hostname == "b"
    assert job.world_size() == 3 and job.local_size("b") == 2


def test_handler(make_driver):
    job = make_driver({"a": 1}, 1, 1)
    handler = rendezvous.create_rendezvous_handler(job)()
    job.wait_for_available_slots(1)
    job._update_host_assignments(DiscoveredHosts({"a": 1}, ["a"]))
    with mock.patch.object(job, "record_ready") as ready:
        assert handler._get_value("rank_and_size", "a:0") == b"0,1,0,1,0,1"
        assert handler._get_value("rank_and_size", "b:0") == b"-1,-1,-1,-1,-1,-1"
    assert ready.call_args_list == [mock.call("a", 0), mock.call("b", 0)]


def test_results_recorder():
    recorder = ResultsRecorder()
    recorder.expect(threading.Thread(target=lambda: None))
    recorder._worker_threads.queue[0].start()
    recorder.add_result("a", 1)
    recorder.add_result("a", 2)
    recorder.set_error_message("why")
    results = recorder.get_results()
    assert results.worker_results == {"a": 1} and results.error_message == "why"


class Listener:
    def __init__(self):
        self.events = []

    def on_hosts_updated(self, version, change):
        self.events.append((version, change))


def test_rank_0_hears_of_every_change(make_driver):
    """Two changes in one second have different versions, so that neither is lost."""
    hosts = FixedHosts({"localhost": 2})
    server = RendezvousServer()
    job = make_driver(hosts, 2, 4, rendezvous=server)
    job.wait_for_available_slots(2)
    port = server.start(rendezvous.create_rendezvous_handler(job))
    heard = {}
    all_registered = threading.Barrier(3)
    is_over = threading.Event()

    def work(slot, events):
        if slot.local_rank > 1:
            is_over.wait(30)
            return 0, time.time()
        manager, listener = WorkerNotificationManager(), Listener()
        manager.init("127.0.0.1", port, None, slot.hostname, slot.local_rank)
        manager.register_listener(listener)
        heard[slot.rank] = listener.events
        all_registered.wait(30)
        is_over.wait(30)
        return 0, time.time()

    job.start(2, work)
    all_registered.wait(30)
    end = time.monotonic() + 20
    for number, found in enumerate(({"localhost": 3}, {"localhost": 2, "other": 1}), 1):
        hosts.set(found)
        while len(heard[0]) < number and time.monotonic() < end:
            time.sleep(0.01)
    is_over.set()
    job.get_results()
    assert heard == {0: [(1, ADDED), (2, MIXED)], 1: []}
