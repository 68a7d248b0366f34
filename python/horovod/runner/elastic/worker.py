# SPDX-License-Identifier: Apache-2.0
"""A worker's ear for changes of the set of workers.

Under horovodrun the changes come through memory that the launcher writes (State in
horovod.common.elastic reads it), and nothing here is connected. A program that drives its workers
with ElasticDriver calls them through WorkerNotificationClient.
"""

import enum
import os
import threading

from horovod.runner.common.util import network, secret

# Where a worker finds its launcher and itself; programs that start workers set them by these names.
HOROVOD_GLOO_RENDEZVOUS_ADDR = "HOROVOD_GLOO_RENDEZVOUS_ADDR"
HOROVOD_GLOO_RENDEZVOUS_PORT = "HOROVOD_GLOO_RENDEZVOUS_PORT"
HOROVOD_GLOO_IFACE = "HOROVOD_GLOO_IFACE"
HOROVOD_HOSTNAME = "HOROVOD_HOSTNAME"
HOROVOD_LOCAL_RANK = "HOROVOD_LOCAL_RANK"

PUT_WORKER_ADDRESSES = "worker_addresses"


class HostUpdateResult(enum.IntFlag):
    """What happened to the set of hosts."""

    no_update = 0
    removed = 1
    added = 2
    mixed = removed | added


class HostsUpdatedRequest:
    """The set of hosts has changed: a number that grows with each change, and what it was."""

    def __init__(self, timestamp, res=HostUpdateResult.no_update):
        self.timestamp = timestamp
        self.res = res


class WorkerNotificationManager:
    """Passes changes on to the states that listen.

    The service starts only where a store is known whose key we have, i.e. under a program that
    drives workers by ElasticDriver. Elsewhere nothing is started, so that the state classes work in
    every job.
    """

    def __init__(self):
        self._lock = threading.Lock()
        self._service = None
        self._listeners = set()

    def init(
        self,
        rendezvous_addr=None,
        rendezvous_port=None,
        nic=None,
        hostname=None,
        local_rank=None,
    ):
        """Start the service once and put its address where the driver finds it.

        What is not given comes from the environment.
        """
        from horovod.runner.http.store import key_from_environment

        environ = os.environ.get
        address = rendezvous_addr or environ(HOROVOD_GLOO_RENDEZVOUS_ADDR)
        with self._lock:
            if self._service is not None or not address or key_from_environment() is None:
                return
            port = rendezvous_port or int(environ(HOROVOD_GLOO_RENDEZVOUS_PORT))
            nic = nic or environ(HOROVOD_GLOO_IFACE)
            hostname = hostname or environ(HOROVOD_HOSTNAME)
            if local_rank is None:
                local_rank = int(environ(HOROVOD_LOCAL_RANK))
            self._service = self._start_service(address, port, nic, f"{hostname}:{local_rank}")

    def _start_service(self, address, port, nic, name):
        from horovod.runner.http.http_client import put_data_into_kvstore

        key = secret.make_secret_key()
        service = WorkerNotificationService(key, nic, self)
        put_data_into_kvstore(address, port, PUT_WORKER_ADDRESSES, name, (service.addresses(), key))
        return service

    def register_listener(self, listener):
        """listener.on_hosts_updated(version, HostUpdateResult) is called from now on."""
        self._listeners.add(listener)

    def remove_listener(self, listener):
        self._listeners.discard(listener)

    def handle_hosts_updated(self, timestamp, update_res):
        """Pass a change on."""
        for listener in list(self._listeners):
            listener.on_hosts_updated(timestamp, update_res)


class WorkerNotificationService(network.BasicService):
    """Where a driver reports changes to a worker."""

    NAME = "worker notification service"

    def __init__(self, key, nic, manager):
        super().__init__(WorkerNotificationService.NAME, key, nic)
        self._manager = manager

    def _handle(self, req, client_address):
        if isinstance(req, HostsUpdatedRequest):
            self._manager.handle_hosts_updated(req.timestamp, req.res)
            return network.AckResponse()
        return super()._handle(req, client_address)


class WorkerNotificationClient(network.BasicClient):
    """What a driver calls a worker with."""

    def __init__(self, addresses, key, verbose, match_intf=False):
        super().__init__(
            WorkerNotificationService.NAME, addresses, key, verbose, match_intf=match_intf
        )

    def notify_hosts_updated(self, timestamp, update_res):
        """Report a change, numbered by `timestamp`."""
        self._send(HostsUpdatedRequest(timestamp, update_res))
