# SPDX-License-Identifier: Apache-2.0
"""The loop of hvd.elastic.run and the notices, with a launcher that the test plays itself."""

import signal
from unittest import mock

import pytest
from horovod.common import elastic
from horovod.common.elastic import ObjectState, make_run, run_fn
from horovod.common.exceptions import (
    HorovodInternalError,
    HostsUpdatedInterrupt,
    WorkerRemovedExit,
)
from horovod.runner.elastic.worker import HostUpdateResult

ADDED, REMOVED = HostUpdateResult.added, HostUpdateResult.removed


class Launcher:
    """Stands for the native module, as far as elastic.py uses it outside of collectives."""

    def __init__(self):
        self.changes = []  # flags of the versions 1, 2, ...
        self.accounted = 0
        self.is_elastic = True
        self.leave_requests = 0
        self.flags = 0

    def generation(self):
        return {"epoch": 1, "notice": self.accounted, "is_elastic": self.is_elastic}

    def notice(self, since):
        flags = self.flags
        for change in self.changes[since:]:
            flags |= change
        return len(self.changes), flags

    def leave_request(self):
        self.leave_requests += 1

    def is_initialized(self):
        return True

    def size(self):
        return 1


@pytest.fixture
def launcher(monkeypatch):
    fake = Launcher()
    monkeypatch.setattr(elastic, "native", fake)
    return fake


class Recorder(ObjectState):
    def __init__(self, **values):
        super().__init__(lambda value, root_rank=0: value, lambda: 0, **values)
        self.log = []

    def save(self):
        self.log.append("save")
        super().save()

    def sync(self):
        self.log.append("sync")
        super().sync()

    def restore(self):
        self.log.append("restore")
        super().restore()

    def discard(self):
        self.log.append("discard")

    def reset(self):
        self.log.append("reset")


# ---- notices ----


def test_two_changes_in_a_row_are_both_seen(launcher):
    state = Recorder()
    state.check_host_updates()
    launcher.changes += [REMOVED, ADDED]
    with pytest.raises(HostsUpdatedInterrupt) as caught:
        state.check_host_updates()
    assert caught.value.skip_sync is False
    state.check_host_updates()
    launcher.changes += [REMOVED]
    with pytest.raises(HostsUpdatedInterrupt) as caught:
        state.commit()
    assert caught.value.skip_sync is True


def test_what_the_generation_accounts_for_is_not_seen_again(launcher):
    state = Recorder()
    launcher.changes += [ADDED, ADDED]
    launcher.accounted = 2
    state.check_host_updates()
    launcher.changes += [REMOVED]  # between init and the first commit
    with pytest.raises(HostsUpdatedInterrupt):
        state.check_host_updates()


def test_changes_that_programs_report(launcher):
    state = Recorder()
    state.on_hosts_updated(5, ADDED)
    state.on_hosts_updated(6, REMOVED)
    with pytest.raises(HostsUpdatedInterrupt) as caught:
        state.check_host_updates()
    assert caught.value.skip_sync is False
    state.on_hosts_updated(6, ADDED)  # known already
    state.check_host_updates()


# ---- the loop ----


def run(state, outcomes, rollback=True, reset=None, translate=None):
    def train(state, *args):
        state.log.append("train")
        outcome = outcomes.pop(0)
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    default = lambda: state.log.append("meet")  # noqa: E731
    return run_fn(train, reset or default, rollback, translate)(state)


def test_a_failure_goes_back_to_the_commit(launcher):
    state = Recorder(step=1)
    assert run(state, [HorovodInternalError("lost"), 7]) == 7
    assert state.log == ["sync", "train", "restore", "meet", "reset", "sync", "train"]


def test_without_rollback_nothing_goes_back(launcher):
    state = Recorder(step=1)

    @make_run(lambda: state.log.append("meet"))(rollback=False)
    def train(state):
        state.log.append("train")
        state.step += 1
        state.commit()
        if state.step == 2:
            raise HorovodInternalError("lost")
        return state.step

    assert train(state) == 3
    assert state.log == ["sync", "train", "discard", "meet", "reset", "save", "sync", "train"]


def test_a_source_that_dies_while_its_state_arrives(launcher):
    """Also without rollback the state must be whole afterwards: that of before the sync."""
    state = Recorder(step=1)
    original, failures = state.sync, [None, HorovodInternalError("the source died")]

    def sync():
        failure = failures.pop(0) if failures else None
        if failure is not None:
            state.step = "half"
            raise failure
        original()

    state.sync = sync
    steps = []

    @make_run(lambda: None)(rollback=False)
    def train(state):
        steps.append(state.step)
        state.step = 5
        if len(steps) == 1:
            raise HorovodInternalError("lost")

    train(state)
    assert steps == [1, 5]


def test_meeting_again_that_fails_is_tried_again(launcher):
    state = Recorder()
    attempts = [HorovodInternalError("peer died"), HorovodInternalError("peer died"), None]

    def reset():
        state.log.append("meet")
        failure = attempts.pop(0)
        if failure is not None:
            raise failure

    assert run(state, [HorovodInternalError("lost"), 1], reset=reset) == 1
    assert state.log.count("meet") == 3 and state.log.count("train") == 2


def test_a_callback_that_fails_by_a_lost_peer(launcher):
    state = Recorder()
    failures = [HorovodInternalError("peer died")]
    state.register_reset_callbacks([lambda: failures and raise_(failures.pop())])
    assert run(state, [HostsUpdatedInterrupt(True), 1]) == 1
    assert state.log.count("meet") == 2


def raise_(error):
    raise error


def test_issue_1994_other_errors_pass(launcher):
    for error in (KeyError("of the user"), ValueError("init failed")):
        with pytest.raises(type(error)):
            run(Recorder(), [error])

    def fails():
        raise ValueError("Horovod initialization failed")

    with pytest.raises(ValueError, match="initialization"):
        run(Recorder(), [HorovodInternalError("lost")], reset=fails)


def test_errors_of_a_framework_are_translated_everywhere(launcher):
    class FrameworkError(Exception):
        pass

    def translate(error):
        return HorovodInternalError(error) if isinstance(error, FrameworkError) else None

    state = Recorder()
    failures = [FrameworkError("in sync")]
    original = state.sync
    state.sync = lambda: raise_(failures.pop()) if failures else original()
    assert run(state, [FrameworkError("in train"), 1], translate=translate) == 1
    with pytest.raises(KeyError):
        run(Recorder(), [KeyError("other")], translate=translate)


def test_skip_sync(launcher):
    state = Recorder()
    assert run(state, [HostsUpdatedInterrupt(True), HostsUpdatedInterrupt(False), 1]) == 1
    assert state.log == [
        "sync",
        "train",
        "meet",
        "reset",
        "train",
        "meet",
        "reset",
        "sync",
        "train",
    ]


@pytest.mark.parametrize(
    "words, root, is_synced",
    [
        # present 1, wants 2, holds 4
        ([5, 5, 5], 0, False),
        ([5, 5, 3], 0, True),  # issue 3494: a newcomer among survivors of a removal
        ([3, 3, 3], 0, True),
        ([3, 7, 3], 1, True),  # only rank 1 has got the state before the source died
    ],
)
def test_who_gives_its_state(launcher, monkeypatch, words, root, is_synced):
    monkeypatch.setattr(elastic, "exchange_numbers", lambda word, name: words)
    assert elastic._agree_on_sync(False, True) is is_synced
    assert elastic.sync_root() == root
    roots = []
    state = ObjectState(lambda value, root_rank=0: roots.append(root_rank) or value, lambda: 0, a=1)
    state.sync()
    assert roots == [root]


# ---- leaving ----


def test_a_removed_worker_exits_with_0_after_its_callbacks(launcher):
    state = Recorder()
    state.register_leave_callbacks([lambda: state.log.append("checkpoint")])

    def reset():
        raise WorkerRemovedExit("host a was removed")

    with pytest.raises(SystemExit) as caught:
        run(state, [HostsUpdatedInterrupt(True)], reset=reset)
    assert caught.value.code == 0 and "host a was removed" in str(caught.value)
    assert state.log == ["sync", "train", "checkpoint"]


def test_sigterm_asks_to_leave(launcher):
    seen = []

    def train(state):
        signal.raise_signal(signal.SIGTERM)
        seen.append(signal.getsignal(signal.SIGTERM))

    run_fn(train, lambda: None)(Recorder())
    assert launcher.leave_requests == 1
    assert seen == [signal.SIG_DFL]  # a second one kills
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_a_script_keeps_its_own_handler(launcher):
    handler = mock.Mock()
    signal.signal(signal.SIGTERM, handler)
    try:
        run_fn(lambda state: signal.raise_signal(signal.SIGTERM), lambda: None)(Recorder())
        assert signal.getsignal(signal.SIGTERM) is handler
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    handler.assert_called_once()
    assert launcher.leave_requests == 0


def test_without_an_elastic_launcher_nothing_is_asked(launcher):
    launcher.is_elastic = False
    assert elastic.leave() is False
    handlers = []
    run_fn(lambda state: handlers.append(signal.getsignal(signal.SIGTERM)), lambda: None)(
        Recorder()
    )
    assert handlers == [signal.SIG_DFL] and launcher.leave_requests == 0
