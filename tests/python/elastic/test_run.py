# SPDX-License-Identifier: Apache-2.0
"""horovod.run() and the functions of horovod.runner as starters of elastic jobs."""

import sys

import horovod
import pytest
from horovod.runner import gloo_run
from horovod.runner.elastic.discovery import HostDiscovery
from horovod.runner.elastic.settings import ElasticSettings


def make_work(folder, what):
    """A function in which the worker that is rank 1 at step 5 does something, once."""

    def work(steps):
        import os
        import signal

        from horovod._keras import host as hvd
        from horovod.common.elastic import (
            ObjectState,
            exchange_numbers,
            given_process_sets,
            make_run,
        )

        hvd.init()
        state = ObjectState(hvd.broadcast_object, hvd.rank, step=0)

        def reset():
            hvd.shutdown()
            hvd.init(process_sets=given_process_sets())

        def do_once():
            try:
                os.close(os.open(os.path.join(folder, "done"), os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                return
            if what == "raise":
                raise ValueError("of the user")
            os.kill(os.getpid(), signal.SIGKILL if what == "kill" else signal.SIGTERM)

        @make_run(reset)
        def train(state):
            while state.step < steps:
                if state.step == 5 and hvd.rank() == 1:
                    do_once()
                assert exchange_numbers(state.step, "step") == [state.step] * hvd.size()
                state.step += 1
                state.commit()
            return hvd.rank(), state.step

        return train(state)

    return work


@pytest.mark.parametrize("what", ["kill", "raise", "term"])
def test_run(tmp_path, what):
    work = make_work(str(tmp_path), what)
    results = horovod.run(
        work, args=(40,), num_proc=3, min_num_proc=2, max_num_proc=3, hosts="localhost:3"
    )
    assert results == [(0, 40), (1, 40)]


def test_a_function_that_always_fails():
    def work():
        raise ValueError("of the user")

    with pytest.raises(RuntimeError, match="of the user"):
        horovod.run(work, num_proc=2, min_num_proc=2, hosts="localhost:2", reset_limit=0)


class OneHost(HostDiscovery):
    """As programs define it."""

    def find_available_hosts_and_slots(self):
        return {"localhost": 2}


def test_a_discovery_of_the_callers(tmp_path):
    plan = ElasticSettings(OneHost(), 2, 2, 30, None)
    work = make_work(str(tmp_path), "kill")
    assert gloo_run.gloo_run_elastic(plan, None, lambda: work(20)) == [(0, 20), (1, 20)]
    gloo_run.gloo_run_elastic(plan, None, [sys.executable, "-c", "print('hello')"])
    with pytest.raises(RuntimeError):
        gloo_run.gloo_run_elastic(plan, None, [sys.executable, "-c", "raise SystemExit(3)"])
