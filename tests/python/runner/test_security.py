# SPDX-License-Identifier: Apache-2.0
"""The two published exploits (CVE-2024-10190, CVE-2026-31234) and their relatives, which must fail.

Both send a pickle to a server of the job without any proof; unpickled, it would write a file.
"""

import ast
import base64
import http.client
import http.server
import os
import pickle
import socket
import threading
import time
from pathlib import Path

import cloudpickle
import horovod
import pytest
from horovod.runner.common.util import network, secret
from horovod.runner.http import http_client, http_server
from horovod.runner.http.authority import NONCE, SIGNATURE, TIME, sign_request
from horovod.runner.http.http_server import KVStoreServer, RendezvousServer

PACKAGE = Path(horovod.__file__).resolve().parent


class Bomb:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (Path(self.path),)


@pytest.fixture
def canary(tmp_path):
    path = tmp_path / "exploited"
    yield path
    assert not path.exists(), "the pickle was executed"


@pytest.fixture(autouse=True)
def no_key(monkeypatch):
    monkeypatch.delenv("HOROVOD_KEY", raising=False)
    yield
    os.environ.pop("HOROVOD_KEY", None)


def send(port, method, path, body=b"", headers=None):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request(method, path, body=body, headers=headers or {})
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def payloads(canary):
    raw = pickle.dumps(Bomb(canary))
    return [raw, base64.b64encode(raw), cloudpickle.dumps(Bomb(canary))]


PATHS = ["/worker_addresses/localhost:0", "/runfunc/func", "/runfunc_result/0", "/runfunc/call"]


@pytest.fixture
def kvstore():
    servers = []

    def start(key=None):
        server = KVStoreServer(key=key)
        servers.append(server)
        return server, server.start_server()

    yield start
    for server in servers:
        server.shutdown_server()


# ---- CVE-2024-10190: the driver unpickles what anybody PUTs ----


def test_rendezvous_does_not_even_speak_http(canary):
    server = RendezvousServer()
    port = server.start()
    for path in PATHS:
        for body in payloads(canary):
            with pytest.raises((OSError, http.client.HTTPException)):
                send(port, "PUT", path, body)
    server.stop()


@pytest.mark.parametrize("key", [None, bytes(32)])
def test_kvstore_holds_bytes_and_never_reads_them(key, kvstore, canary):
    server, port = kvstore(key)
    for path in PATHS:
        for body in payloads(canary):
            assert send(port, "PUT", path, body)[0] == (200 if key is None else 403)
    assert server.get("runfunc", "func") == (payloads(canary)[-1] if key is None else None)


# ---- CVE-2026-31234: a poisoned store, and a worker that unpickles what it finds ----


def test_no_object_is_read_without_a_key(kvstore, canary):
    _, port = kvstore()
    for body in payloads(canary):
        assert send(port, "PUT", "/runfunc/func", body)[0] == 200
        with pytest.raises(PermissionError, match="needs a key"):
            http_client.read_data_from_kvstore("127.0.0.1", port, "runfunc", "func")


def test_answers_of_an_impostor_are_refused(canary):
    """Whoever answers in the store's place, or in between, cannot make the sum."""
    body = payloads(canary)[0]

    class Impostor(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.send_header(SIGNATURE, self.headers[SIGNATURE])  # a reflection
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args):
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Impostor)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with pytest.raises(PermissionError, match="not made with our key"):
        http_client.read_data_from_kvstore(
            "127.0.0.1", server.server_address[1], "runfunc", "func", secret=os.urandom(32)
        )
    server.shutdown()
    server.server_close()


def listening_ports():
    """Ports on which anything listens on this machine."""
    found = {}
    for name in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(name).read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A":
                address, _, port = words[1].partition(":")
                found[int(port, 16)] = address
    return found


def test_running_job_cannot_be_poisoned(canary, tmp_path):
    """All ports that a job of horovod.run() opens, with all the payloads, while it runs."""
    before = listening_ports()
    up = tmp_path / "up"
    results = []

    def call():
        up.touch()
        time.sleep(2)
        return "untouched"

    thread = threading.Thread(target=lambda: results.append(horovod.run(call, num_proc=1)))
    thread.start()
    while not up.exists():
        time.sleep(0.01)
    opened = {p: a for p, a in listening_ports().items() if p not in before}
    for port, address in opened.items():
        assert address.strip("0") != "", f"port {port} listens on every interface"
        for path in PATHS:
            for body in payloads(canary):
                try:
                    send(port, "PUT", path, body)
                except (OSError, http.client.HTTPException):
                    continue
    thread.join(30)
    assert results == [["untouched"]]


# ---- the store over HTTP ----


def test_objects_with_a_key(kvstore):
    key = os.urandom(32)
    _, port = kvstore(key)
    http_client.put_data_into_kvstore("127.0.0.1", port, "s", "k", {"a": [1, 2]}, secret=key)
    answer = http_client.read_data_from_kvstore("127.0.0.1", port, "s", "k", secret=key)
    assert answer == {"a": [1, 2]}
    with pytest.raises(KeyError):
        http_client.read_data_from_kvstore("127.0.0.1", port, "s", "other", secret=key)
    with pytest.raises(PermissionError):
        http_client.read_data_from_kvstore("127.0.0.1", port, "s", "k", secret=os.urandom(32))


def test_replay_and_changes_are_refused(kvstore):
    key = os.urandom(32)
    server, port = kvstore(key)
    headers, _ = sign_request(key, "PUT", "/s/k", b"one")
    assert send(port, "PUT", "/s/k", b"two", headers)[0] == 403
    assert send(port, "PUT", "/s/j", b"one", headers)[0] == 403
    assert send(port, "PUT", "/s/k", b"one", headers)[0] == 200
    assert send(port, "PUT", "/s/k", b"one", headers)[0] == 403  # the same once more
    old, _ = sign_request(key, "PUT", "/s/k", b"old")
    old[TIME] = str(int(old[TIME]) - 10000)
    assert send(port, "PUT", "/s/k", b"old", old)[0] == 403
    fresh, _ = sign_request(key, "GET", "/s/k", b"")
    fresh[NONCE] = "00" * 16
    assert send(port, "GET", "/s/k", b"", fresh)[0] == 403
    assert server.get("s", "k") == b"one"


def test_protocol_and_bounds(kvstore, monkeypatch):
    server, port = kvstore()
    assert send(port, "GET", "/s/k") == (404, b"")
    assert send(port, "PUT", "/s/k", b"v")[0] == 200
    assert send(port, "GET", "/s/k") == (200, b"v")
    for path in ("/", "/s", "/s/", "//k", "/s/k/x", "/" + "s" * 600 + "/k"):
        assert send(port, "GET", path)[0] == 400
    assert send(port, "POST", "/s/k", b"v")[0] == 501
    assert send(port, "HEAD", "/")[0] == 501
    assert send(port, "PUT", "/s/k", b"", {"Content-Length": "999999999999"})[0] == 413
    assert send(port, "PUT", "/s/k", b"", {"Content-Length": "-1"})[0] == 400
    monkeypatch.setattr(http_server, "ENTRIES_MAX", 1)
    assert send(port, "PUT", "/s/other", b"v")[0] == 413
    monkeypatch.setattr(http_server, "TOTAL_MAX", 8)
    assert send(port, "PUT", "/s/k", b"123456789")[0] == 413
    assert server.get("s", "k") == b"v"


def test_slow_sender_is_dropped_and_others_are_served(kvstore, monkeypatch):
    monkeypatch.setattr(http_server.KVStoreHandler, "timeout", 0.2)
    _, port = kvstore()
    with socket.create_connection(("127.0.0.1", port)) as slow:
        slow.sendall(b"PUT /s/k HTTP/1.0\r\nContent-Length: 100\r\n\r\nabc")
        assert send(port, "GET", "/s/k")[0] == 404
        assert b" 408 " in slow.makefile("rb").readline()


@pytest.mark.parametrize("address", ["", "0.0.0.0", "::"])
def test_no_wildcard(address):
    with pytest.raises(ValueError, match="every interface"):
        KVStoreServer(address=address).start_server()
    with pytest.raises(ValueError, match="every interface"):
        RendezvousServer(address=address).start()


# ---- remote calls ----


class Echo(network.BasicService):
    def _handle(self, req, client_address):
        return req if isinstance(req, list) else super()._handle(req, client_address)


@pytest.fixture
def echo():
    key = secret.make_secret_key()
    service = Echo("echo", key)
    yield service, key
    service.shutdown()


def test_remote_call(echo):
    service, key = echo
    client = network.BasicClient("echo", service.addresses(), key, 0)
    assert client._send([1, "two"]) == [1, "two"]
    addresses = [pair for pairs in service.addresses().values() for pair in pairs]
    assert all(address.startswith("127.") for address, _ in addresses)


def test_remote_call_with_another_key_or_name(echo):
    service, key = echo
    for name, other in (("echo", secret.make_secret_key()), ("other", key)):
        with pytest.raises(network.NoValidAddressesFound):
            network.BasicClient(name, service.addresses(), other, 0, attempts=1)
    with pytest.raises(ValueError, match="key is needed"):
        network.BasicService("open", None)


def record(service, key):
    """What a genuine client sends for a Ping, byte by byte."""
    pair = next(iter(service.addresses().values()))[0]
    with socket.create_connection(pair) as connection:
        nonce = connection.recv(network.NONCE_BYTES, socket.MSG_WAITALL)
        sent = []

        class Tape:
            def write(self, data):
                sent.append(data)

            def flush(self):
                pass

        network.Wire(key).write(network.PingRequest(), Tape(), network.REQUEST, nonce)
        connection.sendall(b"".join(sent))
        assert connection.recv(1)
    return pair, b"".join(sent)


def test_remote_call_cannot_be_replayed(echo):
    pair, tape = record(*echo)
    with socket.create_connection(pair) as connection:
        connection.recv(network.NONCE_BYTES, socket.MSG_WAITALL)
        connection.sendall(tape)
        assert connection.makefile("rb").read() == b""


def test_remote_call_never_unpickles_a_stranger(echo, canary):
    service, _ = echo
    pair = next(iter(service.addresses().values()))[0]
    for body in payloads(canary):
        with socket.create_connection(pair) as connection:
            nonce = connection.recv(network.NONCE_BYTES, socket.MSG_WAITALL)
            tape = []

            class Tape:
                write = tape.append

                def flush(self):
                    pass

            wire = network.Wire(os.urandom(32))
            wire.write(Bomb(str(canary)), Tape(), network.REQUEST, nonce)
            connection.sendall(b"".join(tape) + body)
            try:
                assert connection.makefile("rb").read() == b""
            except ConnectionResetError:
                pass


# ---- the code itself ----

# Where a pickle may be read: after a sum was checked, or from a folder that is ours alone.
ALLOWED = {
    "runner/api.py": 2,
    "runner/run_task.py": 2,
    "runner/common/util/network.py": 1,
    "runner/common/util/codec.py": 1,
    "runner/http/http_client.py": 1,
}


def test_pickles_are_read_only_where_they_may_be():
    found = {}
    for path in sorted((PACKAGE / "runner").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            owner = getattr(node.func.value, "id", "")
            if node.func.attr in ("loads", "load") and "pickle" in owner:
                name = str(path.relative_to(PACKAGE))
                found[name] = found.get(name, 0) + 1
    assert found == ALLOWED


# ---- the exploits themselves ----


class Vulnerable(http.server.BaseHTTPRequestHandler):
    """As 0.28.1: a driver that unpickles what is PUT, a store that hands out what anybody PUT."""

    values = {}

    def do_PUT(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path.startswith("/worker_addresses/"):
            cloudpickle.loads(base64.b64decode(body))
        self.values[self.path] = body
        self.send_response(200)
        self.end_headers()

    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.values[self.path])

    def log_message(self, *args):
        pass


def test_the_exploits_work_where_they_can(tmp_path):
    """On a server like the original's the same payloads do their harm: the tests above can fail."""
    path = tmp_path / "exploited"
    server = http.server.HTTPServer(("127.0.0.1", 0), Vulnerable)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    port = server.server_address[1]
    _, encoded, plain = payloads(path)
    assert send(port, "PUT", PATHS[0], encoded)[0] == 200
    assert path.exists()
    path.unlink()
    assert send(port, "PUT", "/runfunc/func", plain)[0] == 200
    assert not path.exists()
    cloudpickle.loads(send(port, "GET", "/runfunc/func")[1])  # a worker of the original
    assert path.exists()
    server.shutdown()
    server.server_close()
