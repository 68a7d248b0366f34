# SPDX-License-Identifier: Apache-2.0
"""The Spark job whose tasks hold the ranks: starting it, finding its tasks, ending it.

Each task registers with the driver's store (horovod.runner.relay) and then waits for the launcher.
Start reading at SparkJob.
"""

import contextlib
import functools
import itertools
import socket
import threading
import time

from horovod.runner.common.util.timeout import Timeout
from horovod.runner.relay import BEAT_S, LOST_S, Relay
from horovod.runner.util.network import local_addresses
from horovod.spark.task import serve_task, task_name

PERIOD_S = 0.05  # between two looks for tasks that have come
END_S = 10  # for tasks that were told to return
FAILED_S = 2  # the same after a failure: some of them may hang
CANCEL_S = 10  # for Spark to kill those that did not
REPLACED_S = 3  # without a beat, a task that Spark has started again is lost
LOOK_AHEAD = 4  # attempts of a task that are looked for, from the last one seen on

_numbers = itertools.count()

TOO_FEW = (
    "Timed out waiting for {activity}. Please check that you have enough resources to run all "
    "Horovod processes. Each Horovod process runs in a Spark task. You may need to increase the "
    "start_timeout parameter to a larger value if your Spark resources are allocated on-demand."
)


def driver_addresses(context, nics=None):
    """Our addresses that executors can reach: those of `nics`, else the one Spark itself uses."""
    own = local_addresses()
    if nics:
        chosen = [own[nic] for nic in sorted(nics) if nic in own]
        if not chosen:
            raise ValueError(
                f"none of the interfaces {sorted(nics)} has an IPv4 address here; there are: "
                f"{', '.join(sorted(own))}"
            )
        return chosen
    try:
        name = context.getConf().get("spark.driver.host") or socket.gethostname()
        address = socket.gethostbyname(name)
    except OSError:
        address = None
    if address in own.values():
        return [address]
    outer = [address for address in own.values() if not address.startswith("127.")]
    return outer or ["127.0.0.1"]


def _mapper(index, _, addresses, key):
    yield serve_task(index, addresses, key)


class SparkJob:
    """Tasks in which ranks can be started, as a context manager; none is left afterwards."""

    def __init__(self, context, count, nics=None):
        self._context = context
        self._count = count
        self.relay = Relay(driver_addresses(context, nics))
        self._group = f"horovod.spark.run.{next(_numbers)}"
        self._seen = {}  # by name: what the task said about itself
        self._attempts = [0] * count  # by index: the last one that was seen
        self._beats = {}  # by name: (the last beat, since when)
        self._lock = threading.Lock()
        self._is_closing = False
        self.error = None  # of the Spark job
        self._is_over = threading.Event()

    def __enter__(self):
        from pyspark import InheritableThread

        self._thread = InheritableThread(target=self._run, daemon=True)
        self._thread.start()
        threading.Thread(target=self._watch, daemon=True, name="horovod-tasks").start()
        return self

    def __exit__(self, kind, *_):
        self._is_closing = True
        for name in self._names():
            self.relay.release(name)
        if not self._is_over.wait(END_S if kind is None else FAILED_S):
            self._context.cancelJobGroup(self._group)
            self._is_over.wait(CANCEL_S)
        self.relay.close()

    def _names(self):
        """Of all tasks that have come, and of attempts that may come yet."""
        yield from list(self._seen)
        for index, attempt in enumerate(self._attempts):
            for number in range(attempt, attempt + LOOK_AHEAD):
                if task_name(index, number) not in self._seen:
                    yield task_name(index, number)

    def _run(self):
        context = self._context
        try:
            context.setJobGroup(self._group, "Horovod Spark Run", interruptOnCancel=True)
            mapper = functools.partial(
                _mapper, addresses=self.relay.addresses, key=bytes(self.relay.key)
            )
            context.range(0, numSlices=self._count).mapPartitionsWithIndex(mapper).collect()
        except BaseException as error:
            self.error = error
        finally:
            self._is_over.set()
            if not self._is_closing:  # cancelled, or Spark has given up
                for name in list(self._seen):
                    self.relay.set_lost(name)

    def _watch(self):
        """Report tasks as lost whose beat stopped; soon if Spark has started another attempt."""
        while not self._is_over.wait(BEAT_S) and not self._is_closing:
            with contextlib.suppress(Exception):  # the store is being closed
                self._look()
                for name, about in list(self._seen.items()):
                    is_replaced = name != task_name(about["index"], self._attempts[about["index"]])
                    if not self._is_alive(name, REPLACED_S if is_replaced else LOST_S):
                        self.relay.set_lost(name)

    # ---- tasks ----

    def _look(self):
        """Notice tasks that have registered since."""
        with self._lock:
            for index, attempt in enumerate(self._attempts):
                for number in range(attempt, attempt + LOOK_AHEAD):
                    name = task_name(index, number)
                    about = None if name in self._seen else self.relay.find(name)
                    if about is not None:
                        self._seen[name] = about
                        self._attempts[index] = number

    def _is_alive(self, name, limit_s=LOST_S):
        beat = self.relay.beat(name)
        now = time.monotonic()
        with self._lock:
            last, since = self._beats.get(name, (None, 0))
            if beat != last:
                self._beats[name] = (beat, now)
                since = now
        return beat is not None and now - since < limit_s

    def alive(self):
        """{name: about} of the tasks in which ranks can run: of copies of a task the first one."""
        self._look()
        found = {}
        for name, about in sorted(self._seen.items(), key=lambda item: item[1]["attempt"]):
            if about["index"] not in found and self._is_alive(name):
                found[about["index"]] = (name, about)
        return dict(found.values())

    def wait_for_tasks(self, count, timeout_s):
        """As many tasks as ranks; RuntimeError if Spark fails, TimeoutException if it is late."""
        limit = Timeout(timeout_s, TOO_FEW)
        while True:
            found = self.alive()
            if len(found) >= count:
                return found
            if self._is_over.wait(PERIOD_S):
                self.check()
            limit.check_time_out_for(f"Spark tasks to start ({len(found)} of {count} have started)")

    def check(self):
        """RuntimeError if the Spark job is over too early."""
        if self._is_over.is_set():
            raise RuntimeError("Spark job has failed, see the error above.") from self.error
