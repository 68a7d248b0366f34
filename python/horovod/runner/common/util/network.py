# SPDX-License-Identifier: Apache-2.0
"""Small remote calls between processes that share a key.

A connection carries one call. The server opens with a random nonce and the client answers with its
own; the request, the answer, and each piece of a stream after it, are a length with a sum and a
body with a sum, where a sum is HMAC-SHA256 with the key over what it is, its number, both nonces
and the bytes. So neither a request nor an answer can be replayed, reflected, cut or passed off as
another's; nobody without the key makes us read a body; and no byte of a body is looked at before
its sum has been found right: only then, from a holder of the key, is it unpickled. Strangers have a
few seconds, and the oldest makes room for the next. A service listens on the loopback unless it is
told interfaces; never on all.

It listens by itself, unlike the servers of horovod.runner.http: see
docs/decisions/0010-who-is-let-in.md.
"""

import codecs
import hmac
import itertools
import os
import queue
import socket
import socketserver
import struct
import threading

import cloudpickle

from horovod.runner.common.util import secret
from horovod.runner.util.network import local_addresses

NONCE_BYTES = 32
LENGTH = struct.Struct("!Q")
BODY_MAX = 256 << 20
READ_TIMEOUT_S = 5
REQUEST, ANSWER, STREAM = b"horovod rpc request", b"horovod rpc answer", b"horovod rpc stream"
STREAM_CHUNK = 4096
STRANGERS_MAX = 128  # connections that have not shown the key yet


class NoValidAddressesFound(Exception):
    pass


class PingRequest:
    pass


class PingResponse:
    def __init__(self, service_name, source_address):
        self.service_name = service_name
        self.source_address = source_address


class AckResponse:
    """Done, and there is nothing more to say."""


class AckStreamResponse:
    """Done, and a stream of text follows."""


class Wire:
    """Messages on a connection, each with the sum that only a holder of the key can make."""

    def __init__(self, key):
        if not key:
            raise ValueError("a key is needed: without one anybody could send code to run")
        self._key = key

    def _digest(self, label, part, nonce, content):
        return secret.compute_digest(self._key, label + part + nonce + content)

    def write(self, obj, wfile, label, nonce):
        """`nonce`: the server's and then the client's."""
        self.write_bytes(cloudpickle.dumps(obj), wfile, label, nonce)

    def write_bytes(self, body, wfile, label, nonce, number=0):
        if len(body) > BODY_MAX:
            raise ValueError(f"a message may have {BODY_MAX} bytes at most, not {len(body)}")
        head = LENGTH.pack(len(body))
        tail = LENGTH.pack(number) + nonce
        wfile.write(head + self._digest(label, b"length", tail, head))
        wfile.write(self._digest(label, b"body", tail, head + body) + body)
        wfile.flush()

    def _check(self, expected, digest):
        if not hmac.compare_digest(expected, digest):
            raise ConnectionError("Security error: digest did not match the message.")

    def read(self, rfile, label, nonce, on_proof=None):
        """`on_proof` is called as soon as the other side has shown that it holds the key."""
        return cloudpickle.loads(self.read_bytes(rfile, label, nonce, on_proof=on_proof))

    def read_bytes(self, rfile, label, nonce, number=0, on_proof=None):
        head = _read_exactly(rfile, LENGTH.size)
        digest = _read_exactly(rfile, secret.DIGEST_LENGTH)
        tail = LENGTH.pack(number) + nonce
        self._check(self._digest(label, b"length", tail, head), digest)
        if on_proof is not None:
            on_proof()
        (n,) = LENGTH.unpack(head)
        if n > BODY_MAX:
            raise ConnectionError("a message is too long")
        digest = _read_exactly(rfile, secret.DIGEST_LENGTH)
        body = _read_exactly(rfile, n)
        self._check(self._digest(label, b"body", tail, head + body), digest)
        return body


def _read_exactly(rfile, n):
    parts, left = [], n
    while left > 0:  # piecewise, so that an announced length costs nobody memory
        part = rfile.read(min(left, 1 << 16))
        if not part:
            raise EOFError("the connection was closed in the middle of a message")
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def _shut(connection):
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # it has ended by itself


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = False
    block_on_close = True
    allow_reuse_address = True
    request_queue_size = 128

    def __init__(self, *args):
        self._strangers = {}  # connections by number, oldest first
        self._count = 0
        self._lock = threading.Lock()
        super().__init__(*args)

    def stranger_enters(self, connection):
        """Its number. Where all places are taken, the oldest stranger makes room."""
        with self._lock:
            while len(self._strangers) >= STRANGERS_MAX:
                _shut(self._strangers.pop(next(iter(self._strangers))))
            self._count += 1
            self._strangers[self._count] = connection
            return self._count

    def stranger_leaves(self, number):
        with self._lock:
            self._strangers.pop(number, None)

    def handle_error(self, request, client_address):
        """Whatever a stranger sends is no reason to print."""


class BasicService:
    """Answers calls; subclasses add to _handle(). All handlers must bear being called twice."""

    def __init__(self, service_name, key, nics=None):
        self._service_name = service_name
        self._wire = Wire(key)
        self._nics = set(nics) if nics else None
        self._servers = []
        self._addresses = {}
        self._port = 0
        try:
            self._listen()
        except Exception:
            self.shutdown()
            raise

    def _listen(self):
        chosen = {
            name: address
            for name, address in local_addresses().items()
            if (name in self._nics if self._nics else address.startswith("127."))
        }
        if not chosen:
            raise NoValidAddressesFound(
                f"No valid network interface found for {sorted(self._nics or [])}."
            )
        for name, address in chosen.items():
            server = _Server((address, self._port), self._make_handler())
            self._port = server.server_address[1]
            self._servers.append(server)
            self._addresses[name] = [(address, self._port)]
            threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()

    def _make_handler(self):
        service = self

        class Handler(socketserver.StreamRequestHandler):
            timeout = READ_TIMEOUT_S

            def handle(self):
                number = self.server.stranger_enters(self.connection)
                timer = threading.Timer(READ_TIMEOUT_S, _shut, (self.connection,))
                timer.daemon = True
                timer.start()

                def on_proof():
                    timer.cancel()
                    self.server.stranger_leaves(number)

                try:
                    nonce = os.urandom(NONCE_BYTES)
                    self.wfile.write(nonce)
                    nonce += _read_exactly(self.rfile, NONCE_BYTES)
                    request = service._wire.read(self.rfile, REQUEST, nonce, on_proof)
                finally:
                    on_proof()
                self.connection.settimeout(None)
                answer = service._handle(request, self.client_address)
                if answer is None:
                    raise RuntimeError(f"{service._service_name} does not know {type(request)}")
                stream = None
                if isinstance(answer, tuple):
                    answer, stream = answer
                service._wire.write(answer, self.wfile, ANSWER, nonce)
                if stream is not None:
                    self._copy(stream, nonce)

            def _copy(self, stream, nonce):
                """Piece by piece; an empty one is the end, so that a cut is noticed."""
                number = 0
                while True:
                    text = stream.read(STREAM_CHUNK)
                    raw = text.encode("utf-8") if isinstance(text, str) else text or b""
                    service._wire.write_bytes(raw, self.wfile, STREAM, nonce, number)
                    if not raw:
                        return
                    number += 1

        return Handler

    def _handle(self, req, client_address):
        if isinstance(req, PingRequest):
            return PingResponse(self._service_name, client_address[0])
        return None

    def addresses(self):
        return {name: list(pairs) for name, pairs in self._addresses.items()}

    def get_port(self):
        return self._port

    def shutdown(self):
        """Returns once the calls under way have been answered."""
        for server in self._servers:
            server.shutdown()
            server.server_close()
        self._servers = []


class BasicClient:
    """Calls a service at whichever of its addresses answers with the right name."""

    def __init__(
        self,
        service_name,
        addresses,
        key,
        verbose,
        match_intf=False,
        probe_timeout=20,
        attempts=3,
    ):
        self._service_name = service_name
        self._wire = Wire(key)
        self._verbose = verbose
        self._match_intf = match_intf
        self._probe_timeout = probe_timeout
        self._attempts = attempts
        self._addresses = self._probe(addresses)
        if not self._addresses:
            raise NoValidAddressesFound(
                f"Horovod was unable to connect to {service_name} on any of {addresses}."
            )

    def addresses(self):
        return self._addresses

    def _probe(self, addresses):
        results = queue.Queue()
        threads = []
        for name, pairs in addresses.items():
            for pair in pairs:
                thread = threading.Thread(
                    target=self._probe_one, args=(name, tuple(pair), results), daemon=True
                )
                thread.start()
                threads.append(thread)
        for thread in threads:
            thread.join()
        found = {}
        while not results.empty():
            name, pair = results.get()
            found.setdefault(name, []).append(pair)
        return found

    def _probe_one(self, name, pair, results):
        for _ in range(self._attempts):
            try:
                answer = self._call(pair, PingRequest(), self._probe_timeout)
            except Exception:
                continue
            if answer.service_name != self._service_name:
                return
            if self._match_intf and answer.source_address != local_addresses().get(name):
                return
            results.put((name, pair))
            return

    def _call(self, pair, request, timeout_s, stream=None):
        with socket.create_connection(pair, timeout_s) as connection:
            connection.settimeout(timeout_s)
            with connection.makefile("rb") as rfile, connection.makefile("wb") as wfile:
                own = os.urandom(NONCE_BYTES)
                nonce = _read_exactly(rfile, NONCE_BYTES) + own
                wfile.write(own)
                self._wire.write(request, wfile, REQUEST, nonce)
                connection.settimeout(None)
                answer = self._wire.read(rfile, ANSWER, nonce)
                if stream is not None and isinstance(answer, AckStreamResponse):
                    self._read_stream(rfile, nonce, stream)
                return answer

    def _read_stream(self, rfile, nonce, stream):
        decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        for number in itertools.count():
            raw = self._wire.read_bytes(rfile, STREAM, nonce, number)
            stream.write(decode(raw, not raw))
            if not raw:
                return

    def _send(self, req, stream=None):
        pair = next(iter(self._addresses.values()))[0]
        for attempt in range(self._attempts):
            try:
                return self._call(pair, req, self._probe_timeout, stream)
            except Exception:
                if attempt == self._attempts - 1:
                    raise
        return None
