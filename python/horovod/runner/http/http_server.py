# SPDX-License-Identifier: Apache-2.0
"""Two servers for programs that start ranks by themselves.

RendezvousServer is where the ranks find each other, KVStoreServer holds bytes under a scope and a
key. Both are the store of libhorovod (store.py), authenticated and encrypted, served by a thread of
the library; the names are those that programs know, HTTP is not spoken. Neither looks into what it
holds. Both listen on the loopback unless told an address; a RendezvousServer that is told of ranks
on other hosts listens on our addresses on the way there too.

The key. A server takes `key` (32 bytes), else HOROVOD_KEY (64 hex digits), else it makes one. It
puts it into os.environ["HOROVOD_KEY"], so that processes which inherit that have it. A launcher
that builds its ranks' environment anew must pass on HOROVOD_KEY, or better a file
(HOROVOD_KEY_FILE) or a descriptor (HOROVOD_KEY_FD), beside HOROVOD_GLOO_RENDEZVOUS_ADDR and _PORT.
Processes without it are refused.
"""

import os

from horovod.runner.http.store import (
    KEY_NAME,
    NAME_MAX,
    VALUE_MAX,
    Server,
    is_full,
    key_from_environment,
)
from horovod.runner.util.network import filter_local_addresses, route_to

# names that some programs use
SINGLE_REQUEST_TIMEOUT = 3
TOTAL_REQUEST_TIMEOUT = 60
TIMEOUT = 408
BAD_REQUEST = 400
OK = 200
NOT_FOUND = 404

LOOPBACK = "127.0.0.1"


class KVStoreHandler:
    """The name is kept for programs that import it; there is nothing to handle."""


class KVStoreHTTPServer:
    """The name is kept for programs that import it; use KVStoreServer."""

    def __init__(self, addr, handler, verbose=0):
        raise NotImplementedError(
            "the store speaks the protocol of libhorovod, not HTTP: use KVStoreServer"
        )


class RendezvousHandler(KVStoreHandler):
    """The name is kept for programs that import it; there is nothing to handle."""


class RendezvousHTTPServer(KVStoreHTTPServer):
    """The name is kept for programs that import it; use RendezvousServer."""


def _refuse_wildcard(address):
    if address in ("", "0.0.0.0", "::", "[::]"):
        raise ValueError(
            f"'{address}' would listen on every interface; name the address that the ranks reach"
        )


class _KeyedServer:
    """A store and its key, which goes into the environment while the store is served."""

    def __init__(self, verbose=0, key=None, address=LOOPBACK):
        self._verbose = verbose
        self._key = key
        self._address = address
        self._server = None
        self._key_before = None  # of the environment

    @property
    def key(self):
        return self._key

    def _serve(self):
        _refuse_wildcard(self._address)
        if self._key is None:
            self._key = key_from_environment()
        if self._key is None:
            self._key = os.urandom(32)
        self._server = Server(self._address, self._key)
        self._key_before = os.environ.get(KEY_NAME)
        os.environ[KEY_NAME] = self._key.hex()
        return self._server.port

    def _stop(self):
        if self._server is None:
            return
        self._server.stop()
        self._server = None
        if os.environ.get(KEY_NAME) != self._key.hex():
            return
        if self._key_before is None:
            del os.environ[KEY_NAME]
        else:
            os.environ[KEY_NAME] = self._key_before

    def get(self, scope, key):
        """The bytes under a key, or None."""
        return self._server.get(scope, key)

    def put(self, scope, key, value):
        """False: there is no more room."""
        if len(value) > VALUE_MAX:
            return False
        try:
            self._server.put(scope, key, value)
        except RuntimeError as error:
            if is_full(error) and max(len(scope), len(key)) <= NAME_MAX:
                return False
            raise
        return True


class KVStoreServer(_KeyedServer):
    """Bytes under a scope and a key, for whoever holds the store's key."""

    def start_server(self):
        """Returns the port."""
        return self._serve()

    def shutdown_server(self):
        self._stop()


class RendezvousServer(_KeyedServer):
    """Where the ranks of a job find each other; see the text at the top about the key.

    `address`: "127.0.0.1" if all ranks are on this host, else the address at which they reach it.
    """

    def start(self, handler_cls=RendezvousHandler):
        """Begin to serve; returns the port.

        An ElasticDriver's handler class is accepted: the driver reads what its workers have put
        here. No other handler is ever called.
        """
        if getattr(handler_cls, "driver", None) is None and handler_cls is not RendezvousHandler:
            raise NotImplementedError(
                "RendezvousServer speaks the protocol of libhorovod, not HTTP: it has no handlers"
            )
        return self._serve()

    def init(self, host_assignments):
        """Say who is expected: SlotInfos. Listens on the way to those that are not here."""
        names = sorted({slot.hostname for slot in host_assignments})
        for name in filter_local_addresses(names):
            address = route_to(name)
            if address is not None:
                self._server.listen(address)

    def stop(self):
        self._stop()

    # names that some programs use
    start_server = start
    stop_server = stop
    shutdown_server = stop
