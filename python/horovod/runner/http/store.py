# SPDX-License-Identifier: Apache-2.0
"""The store of libhorovod, as the servers and clients of this folder use it.

Its protocol is the one that ranks and launcher speak (src/wire): both sides prove the key before
anything else is read, every message is sealed and numbered, and nothing without a right seal takes
more memory than a header and 64 KiB. So nothing can be forged, replayed or answered by another,
and a stranger costs next to nothing.
"""

import os
import threading

KEY_NAME = "HOROVOD_KEY"
KEY_BYTES = 32
OPEN_TIMEOUT_S = 10
ANSWER_TIMEOUT_S = 30
VALUE_MAX = 64 << 20  # of one entry
NAME_MAX = 256  # of a scope or a key


def key_from_environment():
    """32 bytes, or None. A rank that has called hvd.init() has none: the core wipes it."""
    text = os.environ.get(KEY_NAME, "")
    try:
        key = bytes.fromhex(text)
    except ValueError:
        return None
    return key if len(key) == KEY_BYTES else None


def is_full(error):
    """Did the store refuse an entry because a limit was reached?"""
    from horovod.common.library import native

    return getattr(error, "status", None) == native.ERR_LIMIT


def join_address(host, port):
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class Client:
    """Entries of a store somewhere; any thread, also after a fork.

    Without a port, `host` is a list of addresses with ports, "A:1,B:2": the first that answers.
    """

    def __init__(self, host, port, key):
        from horovod.common.library import native

        self._native = native
        self._address = host if port is None else join_address(host, port)
        self._key = key
        self._lock = threading.Lock()
        self._pid = None
        self._client = None

    def _connect(self):
        if self._client is not None and self._pid == os.getpid():
            return
        self._client = None
        try:
            self._client = self._native.store_open(self._address, self._key, OPEN_TIMEOUT_S)
        except self._native.StatusError as error:
            if error.status == self._native.ERR_AUTH:
                raise PermissionError(f"{error}: its key is not ours") from error
            raise ConnectionError(str(error)) from error
        self._pid = os.getpid()

    def _call(self, function, *args):
        with self._lock:
            self._connect()
            try:
                return function(self._client, *args)
            except self._native.StatusError:
                self._client = None  # it may be out of step; the next call connects anew
                raise

    def put(self, scope, name, value):
        self._call(self._native.store_put, scope, name, bytes(value), ANSWER_TIMEOUT_S)

    def get(self, scope, name):
        """The bytes, or None if there is no such entry."""
        return self._call(self._native.store_get, scope, name, 0)

    def wait(self, scope, name, timeout_s):
        """The bytes as soon as there is such an entry; None if there is none in time.

        Other threads' calls of this client wait meanwhile.
        """
        try:
            return self._call(self._native.store_get, scope, name, timeout_s)
        except self._native.StatusError as error:
            if error.status == self._native.ERR_TIMEOUT:
                return None
            raise

    def delete(self, scope):
        """All entries of a scope."""
        self._call(self._native.store_delete, scope, ANSWER_TIMEOUT_S)


class Server:
    """A store that this process serves, by a thread of the library."""

    def __init__(self, host, key):
        from horovod.common.library import native

        self._native = native
        self._host = host
        self._server, bound = native.store_serve(join_address(host, 0), key)
        self.port = int(bound.rpartition(":")[2])
        self.listens = {host}
        self._own = Client(host, self.port, key)

    def listen(self, host):
        """On one more of our addresses, under the same port."""
        if host not in self.listens:
            self._native.store_listen(self._server, join_address(host, self.port))
            self.listens.add(host)

    def put(self, scope, name, value):
        self._own.put(scope, name, value)

    def get(self, scope, name):
        return self._own.get(scope, name)

    def stop(self):
        self._own = None
        self._server = None  # its last reference: the thread ends here
