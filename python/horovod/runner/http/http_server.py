# SPDX-License-Identifier: Apache-2.0
"""Two servers for programs that start ranks by themselves.

RendezvousServer is where the ranks find each other: the store of libhorovod, authenticated and
encrypted, served by a thread of the library. KVStoreServer holds bytes under /SCOPE/KEY, over HTTP.
Neither ever looks into what it holds. Both listen on the loopback unless told an address; a
RendezvousServer that is told of ranks on other hosts listens on our addresses on the way there too.

The key. RendezvousServer takes `key` (32 bytes), else HOROVOD_KEY (64 hex digits), else it makes
one. It puts it into os.environ["HOROVOD_KEY"], so that ranks which inherit that have it. A launcher
that builds its ranks' environment anew must pass on HOROVOD_KEY, or better a file
(HOROVOD_KEY_FILE) or a descriptor (HOROVOD_KEY_FD), beside HOROVOD_GLOO_RENDEZVOUS_ADDR and _PORT.
Ranks without it are refused.
"""

import http.server
import os
import socket
import socketserver
import threading

from horovod.runner.http.authority import (
    KEY_NAME,
    NONCE,
    SIGNATURE,
    Guard,
    key_from_environment,
    sign_answer,
)
from horovod.runner.util.network import filter_local_addresses, route_to

SINGLE_REQUEST_TIMEOUT = 3
TOTAL_REQUEST_TIMEOUT = 60
TIMEOUT = 408
BAD_REQUEST = 400
FORBIDDEN = 403
OK = 200
NOT_FOUND = 404
TOO_LARGE = 413
CONNECTIONS_MAX = 128
VALUE_MAX = 64 << 20
TOTAL_MAX = 512 << 20
NAME_MAX = 256
ENTRIES_MAX = 65536
LOOPBACK = "127.0.0.1"


class KVStoreHandler(http.server.BaseHTTPRequestHandler):
    """GET and PUT of /SCOPE/KEY; whatever else is asked is refused."""

    timeout = SINGLE_REQUEST_TIMEOUT
    server_version = "horovod"
    sys_version = ""

    def setup(self):
        super().setup()
        self._timer = threading.Timer(TOTAL_REQUEST_TIMEOUT, self._give_up)
        self._timer.daemon = True
        self._timer.start()

    def finish(self):
        self._timer.cancel()
        try:
            super().finish()
        except OSError:
            pass  # the other side left

    def _give_up(self):
        try:
            self.connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # it has ended by itself

    def do_GET(self):  # noqa: N802
        place = self._place()
        if place is None or not self._is_admitted(b""):
            return
        value = self.server.read(*place)
        if value is None:
            self._answer(NOT_FOUND)
        else:
            self._answer(OK, value)

    def do_PUT(self):  # noqa: N802
        place = self._place()
        if place is None:
            return
        value = self._body()
        if value is None or not self._is_admitted(value):
            return
        self._answer(OK if self.server.write(*place, value) else TOO_LARGE)

    def do_HEAD(self):  # noqa: N802
        self._answer(501)

    def _place(self):
        """Scope and key; if the path has another form the request is answered here."""
        parts = self.path.split("/")
        if len(parts) != 3 or parts[0] or not all(parts[1:]) or len(self.path) > 2 * NAME_MAX:
            self._answer(BAD_REQUEST)
            return None
        return parts[1], parts[2]

    def _body(self):
        length = self.headers.get("Content-Length", "")
        if not length.isdigit():
            self._answer(BAD_REQUEST)
            return None
        if len(length) > 12 or int(length) > VALUE_MAX:
            self.close_connection = True
            self._answer(TOO_LARGE)
            return None
        parts, left = [], int(length)
        try:
            while left > 0:  # piecewise, so that an announced length costs us nothing
                part = self.rfile.read1(min(left, 1 << 16))
                if not part:
                    raise TimeoutError
                parts.append(part)
                left -= len(part)
        except TimeoutError:
            self._answer(TIMEOUT)
            return None
        return b"".join(parts)

    def _is_admitted(self, body):
        if self.server.admits(self.command, self.path, self.headers, body):
            return True
        self._answer(FORBIDDEN)
        return False

    def _answer(self, status, body=b""):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        if self.server.key is not None:
            signature = sign_answer(self.server.key, self.headers.get(NONCE, ""), status, body)
            self.send_header(SIGNATURE, signature)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format, *args):
        if getattr(self.server, "verbose", 0):
            super().log_message(format, *args)


class KVStoreHTTPServer(socketserver.ThreadingMixIn, http.server.HTTPServer):
    """The values and their bounds; one thread per request, so many at once."""

    daemon_threads = True

    def __init__(self, addr, handler, verbose=0, key=None):
        self.key = key
        self.verbose = verbose
        self._guard = Guard(key) if key is not None else None
        self._lock = threading.Lock()
        self._values = {}
        self._bytes = 0
        self._count = threading.BoundedSemaphore(CONNECTIONS_MAX)
        super().__init__(addr, handler)

    def server_bind(self):
        """Without the look-up of our own name that the base class does."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]

    def process_request(self, request, client_address):
        if self._count.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request, client_address):
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._count.release()

    def handle_error(self, request, client_address):
        """Whatever a stranger sends is no reason to print."""

    def admits(self, method, path, headers, body):
        if self._guard is None:
            return True
        with self._lock:
            return self._guard.admits(method, path, headers, body)

    def read(self, scope, key):
        with self._lock:
            return self._values.get((scope, key))

    def write(self, scope, key, value):
        """False: there is no more room."""
        with self._lock:
            before = self._values.get((scope, key))
            total = self._bytes + len(value) - len(before or b"")
            if total > TOTAL_MAX or (before is None and len(self._values) >= ENTRIES_MAX):
                return False
            self._values[scope, key] = value
            self._bytes = total
            return True


class KVStoreServer:
    """Bytes under /SCOPE/KEY. With a key, requests without its proof are refused."""

    def __init__(self, verbose=0, key=None, address=LOOPBACK):
        self._verbose = verbose
        self._key = key if key is not None else key_from_environment()
        self._address = address
        self._server = None
        self._thread = None

    def start_server(self):
        """Returns the port."""
        _refuse_wildcard(self._address)
        self._server = KVStoreHTTPServer(
            (self._address, 0), KVStoreHandler, self._verbose, self._key
        )
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), daemon=True, name="horovod-kvstore"
        )
        self._thread.start()
        return self._server.server_address[1]

    def get(self, scope, key):
        """The bytes under a key, or None."""
        return self._server.read(scope, key)

    def put(self, scope, key, value):
        return self._server.write(scope, key, value)

    def shutdown_server(self):
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()
            self._server = None


def _refuse_wildcard(address):
    if address in ("", "0.0.0.0", "::", "[::]"):
        raise ValueError(
            f"'{address}' would listen on every interface; name the address that the ranks reach"
        )


class RendezvousHandler(KVStoreHandler):
    """The name is kept for programs that import it; RendezvousServer does not speak HTTP."""


class RendezvousHTTPServer(KVStoreHTTPServer):
    """The name is kept for programs that import it; RendezvousServer does not speak HTTP."""


class RendezvousServer:
    """Where the ranks of a job find each other; see the text at the top about the key.

    `address`: "127.0.0.1" if all ranks are on this host, else the address at which they reach it.
    """

    def __init__(self, verbose=0, key=None, address=LOOPBACK):
        self._verbose = verbose
        self._key = key
        self._address = address
        self._server = None
        self._port = 0
        self._listens = set()

    @property
    def key(self):
        return self._key

    def start(self, handler_cls=RendezvousHandler):
        """Begin to serve; returns the port."""
        from horovod.common.library import native

        if handler_cls is not RendezvousHandler:
            raise NotImplementedError(
                "RendezvousServer speaks the protocol of libhorovod, not HTTP: it has no handlers"
            )
        _refuse_wildcard(self._address)
        self._settle_key()
        where = f"[{self._address}]:0" if ":" in self._address else f"{self._address}:0"
        self._server, bound = native.store_serve(where, self._key)
        self._port = int(bound.rpartition(":")[2])
        self._listens = {self._address}
        return self._port

    def _settle_key(self):
        if self._key is None:
            self._key = key_from_environment()
        if self._key is None:
            self._key = os.urandom(32)
        os.environ[KEY_NAME] = self._key.hex()

    def init(self, host_assignments):
        """Say who is expected: SlotInfos. Listens on the way to those that are not here."""
        from horovod.common.library import native

        names = sorted({slot.hostname for slot in host_assignments})
        for name in filter_local_addresses(names):
            address = route_to(name)
            if address is not None and address not in self._listens:
                native.store_listen(self._server, f"{address}:{self._port}")
                self._listens.add(address)

    def stop(self):
        self._server = None
        if self._key is not None and os.environ.get(KEY_NAME) == self._key.hex():
            del os.environ[KEY_NAME]

    # names that some programs use
    start_server = start
    stop_server = stop
    shutdown_server = stop
