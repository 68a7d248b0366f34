# SPDX-License-Identifier: Apache-2.0
"""A worker's ear for news about hosts; without an elastic launcher there are none."""

import enum


class HostUpdateResult(enum.IntFlag):
    """What happened to the set of hosts."""

    no_update = 0
    removed = 1
    added = 2
    mixed = removed | added


class WorkerNotificationManager:
    """Passes news about hosts on to the states that listen.

    The launcher calls `handle_hosts_updated`; a job that was not started for elastic training never
    hears anything, so that the state classes work there too.
    """

    def __init__(self):
        self._listeners = set()

    def init(
        self,
        rendezvous_addr=None,
        rendezvous_port=None,
        nic=None,
        hostname=None,
        local_rank=None,
    ):
        """Nothing to connect to without an elastic launcher."""

    def register_listener(self, listener):
        self._listeners.add(listener)

    def remove_listener(self, listener):
        self._listeners.discard(listener)

    def handle_hosts_updated(self, timestamp, update_res):
        for listener in list(self._listeners):
            listener.on_hosts_updated(timestamp, update_res)
