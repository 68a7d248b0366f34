# SPDX-License-Identifier: Apache-2.0
"""What workers ask an ElasticDriver: their place, and where they can be notified.

The store of horovod.runner.http does not call handlers; RendezvousServer hands workers' addresses
to the driver when it looks for them. A program that answers its workers by its own means calls the
handler's methods.
"""

from horovod.runner.common.util import codec
from horovod.runner.elastic.worker import PUT_WORKER_ADDRESSES  # noqa: F401
from horovod.runner.http.http_server import RendezvousHandler

GET_RANK_AND_SIZE = "rank_and_size"


class ElasticRendezvousHandler(RendezvousHandler):
    """Answers for one driver; create_rendezvous_handler() makes the class."""

    driver = None

    def _get_value(self, scope, key):
        """The place of a worker "host:slot" in the next generation, for which this call waits."""
        if scope != GET_RANK_AND_SIZE:
            return None
        host, local_rank = key.rsplit(":", 1)
        return self._get_rank_and_size(host, int(local_rank))

    def _get_rank_and_size(self, host, local_rank):
        self.driver.record_ready(host, local_rank)
        slot_info = self.driver.get_slot_info(host, local_rank)
        return slot_info.to_response_string().encode("ascii")

    def _put_value(self, scope, key, value):
        """Where a worker "host:slot" can be notified: what codec makes of (addresses, key)."""
        if scope == PUT_WORKER_ADDRESSES:
            host, local_rank = key.rsplit(":", 1)
            self._put_worker_addresses(host, int(local_rank), *codec.loads_base64(value))

    def _put_worker_addresses(self, host, local_rank, addresses, secret_key):
        self.driver.register_worker_server(host, local_rank, addresses, secret_key)


def create_rendezvous_handler(driver):
    """A handler class for RendezvousServer.start()."""
    return type("ElasticRendezvousHandler", (ElasticRendezvousHandler,), {"driver": driver})
