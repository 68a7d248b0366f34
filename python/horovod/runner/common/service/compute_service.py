# SPDX-License-Identifier: Apache-2.0
"""Where the dispatchers and workers of a tf.data service meet the ranks that train.

Dispatchers register their address, workers register with a dispatcher, and whoever needs one waits
here for it. Waiting is done by asking again, so that no connection stays open.
"""

import threading
import time

from horovod.runner.common.util import network
from horovod.runner.common.util.timeout import TimeoutException

POLL_S = 0.1


class _Call:
    """A method of the service's table, to be called there with these arguments."""

    def __init__(self, method, *args):
        self.method = method
        self.args = args


class _Answer:
    def __init__(self, value=None, error=None):
        self.value = value
        self.error = error


class _Table:
    METHODS = ("register_dispatcher", "dispatcher", "register_worker", "has_workers")

    def __init__(self, dispatchers, workers_per_dispatcher):
        self.lock = threading.Lock()
        self.workers_per_dispatcher = workers_per_dispatcher
        self.addresses = [None] * dispatchers
        self.workers = [set() for _ in range(dispatchers)]

    def _check(self, dispatcher_id):
        if not 0 <= dispatcher_id < len(self.addresses):
            raise IndexError(
                f"Dispatcher id must be within [0..{len(self.addresses) - 1}]: {dispatcher_id}"
            )

    def register_dispatcher(self, dispatcher_id, address):
        self._check(dispatcher_id)
        with self.lock:
            known = self.addresses[dispatcher_id]
            if known is not None and known != address:
                raise ValueError(
                    f"Dispatcher with id {dispatcher_id} has already been registered under "
                    f"different address {known}: {address}"
                )
            self.addresses[dispatcher_id] = address

    def dispatcher(self, dispatcher_id):
        self._check(dispatcher_id)
        with self.lock:
            return self.addresses[dispatcher_id]

    def register_worker(self, dispatcher_id, worker_id):
        self._check(dispatcher_id)
        with self.lock:
            self.workers[dispatcher_id].add(worker_id)

    def has_workers(self, dispatcher_id):
        self._check(dispatcher_id)
        with self.lock:
            return len(self.workers[dispatcher_id]) >= self.workers_per_dispatcher


class ComputeService(network.BasicService):
    NAME = "Compute service"

    def __init__(self, dispatchers, workers_per_dispatcher, key, nics=None):
        if dispatchers <= 0:
            raise ValueError(f"The number of dispatchers must be larger than 0: {dispatchers}")
        if workers_per_dispatcher <= 0:
            raise ValueError(
                "The number of workers per dispatcher must be larger than 0: "
                f"{workers_per_dispatcher}"
            )
        self._table = _Table(dispatchers, workers_per_dispatcher)
        self._is_shut_down = threading.Event()
        super().__init__(self.NAME, key, nics)

    def _handle(self, req, client_address):
        if not isinstance(req, _Call):
            return super()._handle(req, client_address)
        if req.method == "shutdown":
            self._is_shut_down.set()
            return _Answer()
        if req.method == "is_shut_down":
            return _Answer(self._is_shut_down.is_set())
        if req.method not in _Table.METHODS:
            return _Answer(error=AttributeError(req.method))
        try:
            return _Answer(getattr(self._table, req.method)(*req.args))
        except (ValueError, IndexError) as error:
            return _Answer(error=error)

    def wait_for_shutdown(self):
        self._is_shut_down.wait()


class ComputeClient(network.BasicClient):
    def __init__(self, addresses, key, verbose=1):
        super().__init__(ComputeService.NAME, addresses, key, verbose)

    def _ask(self, method, *args):
        answer = self._send(_Call(method, *args))
        if answer.error is not None:
            raise answer.error
        return answer.value

    def _wait(self, timeout, message, method, *args):
        deadline = time.monotonic() + timeout
        while True:
            value = self._ask(method, *args)
            if value:
                return value
            if time.monotonic() > deadline:
                raise TimeoutException(f"{message} Timeout after {timeout} seconds.")
            time.sleep(min(POLL_S, timeout))

    def register_dispatcher(self, dispatcher_id, dispatcher_address):
        self._ask("register_dispatcher", dispatcher_id, dispatcher_address)

    def wait_for_dispatcher_registration(self, dispatcher_id, timeout):
        """The address of the dispatcher, once it has one."""
        return self._wait(
            timeout,
            f"Timed out waiting for dispatcher {dispatcher_id} to register. Try to find out what "
            "takes the dispatcher so long to register or increase timeout.",
            "dispatcher",
            dispatcher_id,
        )

    def register_worker_for_dispatcher(self, dispatcher_id, worker_id):
        self._ask("register_worker", dispatcher_id, worker_id)

    def wait_for_dispatcher_worker_registration(self, dispatcher_id, timeout):
        self._wait(
            timeout,
            f"Timed out waiting for workers for dispatcher {dispatcher_id} to register. Try to "
            "find out what takes the workers so long to register or increase timeout.",
            "has_workers",
            dispatcher_id,
        )

    def shutdown(self):
        self._ask("shutdown")

    def wait_for_shutdown(self):
        while not self._ask("is_shut_down"):
            time.sleep(POLL_S)
