# SPDX-License-Identifier: Apache-2.0
"""The two published exploits (CVE-2024-10190, CVE-2026-31234) and their relatives, which must fail.

Both send a pickle to a server of the job without any proof; unpickled, it would write a file.
"""

import ast
import base64
import contextlib
import http.client
import http.server
import io
import os
import pickle
import socket
import sys
import threading
import time
from pathlib import Path

import cloudpickle
import horovod
import pytest
from horovod.runner import gloo_run
from horovod.runner.common.util import network, secret, settings
from horovod.runner.http import http_client, store
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
def test_kvstore_does_not_speak_http_either(key, kvstore, canary):
    server, port = kvstore(key)
    for path in PATHS:
        for body in payloads(canary):
            with pytest.raises((OSError, http.client.HTTPException)):
                send(port, "PUT", path, body)
    assert server.get("runfunc", "func") is None


# ---- CVE-2026-31234: a poisoned store, and a worker that unpickles what it finds ----


def test_nothing_is_read_without_a_key(kvstore, monkeypatch):
    server, port = kvstore()
    assert server.put("runfunc", "func", b"x") is True
    monkeypatch.delenv("HOROVOD_KEY")
    with pytest.raises(PermissionError, match="needs a key"):
        http_client.read_data_from_kvstore("127.0.0.1", port, "runfunc", "func")
    with pytest.raises(PermissionError, match="needs a key"):
        http_client.put_data_into_kvstore("127.0.0.1", port, "runfunc", "func", 1)


def test_answers_of_an_impostor_are_refused(canary, monkeypatch):
    """Whoever answers in the store's place, or in between, cannot prove the key."""
    monkeypatch.setattr(store, "OPEN_TIMEOUT_S", 1)
    body = payloads(canary)[0]
    impostor = socket.create_server(("127.0.0.1", 0))

    def answer():
        while True:
            try:
                connection, _ = impostor.accept()
            except OSError:
                return
            with connection, contextlib.suppress(OSError):
                hello = connection.recv(128)
                connection.sendall(hello + body)  # a reflection, and a pickle
                connection.recv(1 << 16)

    threading.Thread(target=answer, daemon=True).start()
    with pytest.raises(PermissionError, match="not ours"):
        http_client.read_data_from_kvstore(
            "127.0.0.1", impostor.getsockname()[1], "runfunc", "func", secret=os.urandom(32)
        )
    impostor.shutdown(socket.SHUT_RDWR)
    impostor.close()


def family():
    """This process and all that descend from it."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                stat = (entry / "stat").read_text().rsplit(")", 1)[1].split()
                parents[int(entry.name)] = int(stat[1])
    found, size = {os.getpid()}, 0
    while len(found) > size:
        size = len(found)
        found |= {pid for pid, parent in parents.items() if parent in found}
    return found


def sockets_of(pids):
    """Inodes of the sockets that processes hold."""
    found = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            for link in Path(f"/proc/{pid}/fd").iterdir():
                with contextlib.suppress(OSError):
                    target = os.readlink(link)
                    if target.startswith("socket:["):
                        found.add(target[8:-1])
    return found


def listening_ports():
    """Ports on which we or our children listen."""
    found, ours = {}, sockets_of(family())
    for name in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(name).read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and words[9] in ours:
                address, _, port = words[1].partition(":")
                found[int(port, 16)] = address
    return found


def test_running_job_cannot_be_poisoned(canary, tmp_path):
    """All ports that a job of horovod.run() opens, with all the payloads, while it runs."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert server.getsockname()[1] in listening_ports()
    before = listening_ports()
    up, go = tmp_path / "up", tmp_path / "go"
    results = []

    def call():
        up.touch()
        while not go.exists():
            time.sleep(0.01)
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
    go.touch()
    thread.join(60)
    assert results == [["untouched"]]


# ---- the store ----


def test_objects_with_a_key(kvstore, monkeypatch):
    key = os.urandom(32)
    _, port = kvstore(key)
    http_client.put_data_into_kvstore("127.0.0.1", port, "s", "k", {"a": [1, 2]}, secret=key)
    answer = http_client.read_data_from_kvstore("127.0.0.1", port, "s", "k", secret=key)
    assert answer == {"a": [1, 2]}
    assert http_client.read_data_from_kvstore("127.0.0.1", port, "s", "k") == answer  # HOROVOD_KEY
    with pytest.raises(KeyError):
        http_client.read_data_from_kvstore("127.0.0.1", port, "s", "other", secret=key)
    monkeypatch.setattr(store, "OPEN_TIMEOUT_S", 1)
    with pytest.raises(PermissionError):
        http_client.read_data_from_kvstore("127.0.0.1", port, "s", "k", secret=os.urandom(32))


def test_bounds(kvstore, monkeypatch):
    server, port = kvstore()
    assert server.get("s", "k") is None
    assert server.put("s", "k", b"v") is True
    assert server.get("s", "k") == b"v"
    monkeypatch.setattr(store, "VALUE_MAX", 8)
    monkeypatch.setattr(http_client, "VALUE_MAX", 8)
    with pytest.raises(ValueError, match="are allowed"):
        http_client.put_bytes_into_kvstore("127.0.0.1", port, "s", "k", b"123456789")
    assert server.get("s", "k") == b"v"
    server.shutdown_server()
    assert "HOROVOD_KEY" not in os.environ
    server.shutdown_server()  # once more does no harm


def test_key_of_the_environment_is_given_back(kvstore, monkeypatch):
    given = os.urandom(32).hex()
    monkeypatch.setenv("HOROVOD_KEY", given)
    server, port = kvstore()
    other, _ = kvstore(os.urandom(32))
    http_client.put_bytes_into_kvstore("127.0.0.1", port, "s", "k", b"v", bytes.fromhex(given))
    other.shutdown_server()
    assert os.environ["HOROVOD_KEY"] == given
    server.shutdown_server()
    assert os.environ["HOROVOD_KEY"] == given


class Tape:
    """A relay that records what a client sends."""

    def __init__(self, port):
        self.recorded = b""
        self._target = port
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self):
        client, _ = self._server.accept()
        server = socket.create_connection(("127.0.0.1", self._target))

        def back():
            while data := server.recv(1 << 16):
                client.sendall(data)

        threading.Thread(target=back, daemon=True).start()
        while data := client.recv(1 << 16):
            self.recorded += data
            server.sendall(data)
        server.close()
        self._server.close()


def test_store_cannot_be_replayed(kvstore):
    key = os.urandom(32)
    server, port = kvstore(key)
    tape = Tape(port)
    http_client.put_bytes_into_kvstore("127.0.0.1", tape.port, "s", "k", b"one", secret=key)
    assert server.put("s", "k", b"two")
    assert len(tape.recorded) > 256
    with socket.create_connection(("127.0.0.1", port)) as again:
        again.sendall(tape.recorded)
        again.settimeout(20)
        try:
            while again.recv(1 << 16):
                pass
        except ConnectionResetError:
            pass
    assert server.get("s", "k") == b"two"


def resident_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_a_stranger_cannot_fill_our_memory(kvstore, echo):
    """Sixteen of them, each with a body that it announces to be 64 MiB."""
    service, _ = echo
    ports = [kvstore(os.urandom(32))[1], service.get_port()]
    head = b"PUT /s/k HTTP/1.0\r\nContent-Length: 67108864\r\n\r\n"
    before, connections = resident_bytes(), []
    for port in ports * 8:
        connection = socket.create_connection(("127.0.0.1", port))
        connections.append(connection)
        connection.settimeout(0.2)
        try:
            connection.sendall(head)
            for _ in range(16):
                connection.sendall(bytes(1 << 20))
        except OSError:
            pass  # refused before it had sent it all
    grown = resident_bytes() - before
    for connection in connections:
        connection.close()
    assert grown < 64 << 20


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
    """What a genuine client sends for a Ping, byte by byte, and what it is answered."""
    pair = next(iter(service.addresses().values()))[0]
    with socket.create_connection(pair) as connection:
        own = bytes(network.NONCE_BYTES)
        first = connection.recv(network.NONCE_BYTES, socket.MSG_WAITALL)
        sent = [own]

        class Tape:
            write = sent.append

            def flush(self):
                pass

        network.Wire(key).write(network.PingRequest(), Tape(), network.REQUEST, first + own)
        connection.sendall(b"".join(sent))
        answer = connection.makefile("rb").read()
        assert answer
    return pair, b"".join(sent), first + answer


def test_remote_call_cannot_be_replayed(echo):
    pair, tape, _ = record(*echo)
    with socket.create_connection(pair) as connection:
        connection.recv(network.NONCE_BYTES, socket.MSG_WAITALL)
        connection.sendall(tape)
        assert connection.makefile("rb").read() == b""


def test_answer_cannot_be_replayed(echo):
    """Whoever recorded a call plays the server: nonce, answer and all, as they were."""
    service, key = echo
    _, _, answer = record(service, key)
    impostor = socket.create_server(("127.0.0.1", 0))

    def play():
        while True:
            try:
                connection, _ = impostor.accept()
            except OSError:
                return
            with connection:
                connection.sendall(answer)
                while connection.recv(4096):
                    pass

    threading.Thread(target=play, daemon=True).start()
    pairs = {"lo": [("127.0.0.1", impostor.getsockname()[1])]}
    with pytest.raises(network.NoValidAddressesFound):
        network.BasicClient("echo", pairs, key, 0, attempts=1)
    impostor.shutdown(socket.SHUT_RDWR)
    impostor.close()


class Speaker(network.BasicService):
    def _handle(self, req, client_address):
        if isinstance(req, list):
            return network.AckStreamResponse(), io.StringIO("wörd " * 4000)
        return super()._handle(req, client_address)


class Meddler(threading.Thread):
    """A relay that changes or cuts what comes back after the nonce."""

    def __init__(self, port, change):
        super().__init__(daemon=True)
        self._target, self._change = port, change
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]

    def run(self):
        client, _ = self._server.accept()
        server = socket.create_connection(("127.0.0.1", self._target))

        def forth():
            while data := client.recv(1 << 16):
                server.sendall(data)

        threading.Thread(target=forth, daemon=True).start()
        back = server.makefile("rb")
        client.sendall(back.read(network.NONCE_BYTES))
        client.sendall(self._change(back.read()))
        client.shutdown(socket.SHUT_WR)
        self._server.close()


CHANGES = {
    "honest": lambda b: b,
    "changed": lambda b: b[:1000] + b[1000:5000].replace(b"w", b"x") + b[5000:],
    "cut": lambda b: b[:9000],
}


@pytest.mark.parametrize("name", CHANGES)
def test_stream_is_authentic(name):
    key = secret.make_secret_key()
    service = Speaker("speaker", key)
    client = network.BasicClient("speaker", service.addresses(), key, 0)
    relay = Meddler(service.get_port(), CHANGES[name])
    relay.start()
    heard, pair = io.StringIO(), ("127.0.0.1", relay.port)
    if name == "honest":
        client._call(pair, [], 20, heard)
        assert heard.getvalue() == "wörd " * 4000
    else:
        with pytest.raises((ConnectionError, EOFError)):
            client._call(pair, [], 20, heard)
        assert "x" not in heard.getvalue()
    service.shutdown()


def test_strangers_do_not_keep_a_client_out(echo):
    service, key = echo
    client = network.BasicClient("echo", service.addresses(), key, 0)
    pair = next(iter(service.addresses().values()))[0]
    idle = [socket.create_connection(pair) for _ in range(2 * network.STRANGERS_MAX)]
    for i in range(5):
        assert client._send([i]) == [i]
    for connection in idle:
        connection.close()


# ---- launch_gloo ----


def test_launch_gloo_puts_no_environment_on_a_command_line(tmp_path):
    """Neither on the line that exec_command is given nor on that of any process."""
    mark = f"token-{os.urandom(8).hex()}"
    plan = settings.Settings(hosts="localhost:2", num_proc=2)
    env = {**os.environ, "SECRET_TOKEN": mark, "ODD": "a b'c\n\"$x"}
    lines, seen = [], []
    inner = gloo_run._exec_command_fn(plan)

    def exec_command(line, slot, events):
        lines.append(line)
        return inner(line, slot, events)

    script = (
        "import os, pathlib; r = os.environ['HOROVOD_RANK']; t = os.environ['SECRET_TOKEN'];"
        f"p = pathlib.Path({str(tmp_path)!r});"
        "(p / r).write_text(t + os.environ['ODD']);"
        "c = [f.read_bytes() for f in pathlib.Path('/proc').glob('[0-9]*/cmdline')];"
        "(p / f'{r}.leak').write_text(str(sum(t.encode() in x for x in c)))"
    )
    command = [sys.executable, "-c", script]
    gloo_run.launch_gloo(command, exec_command, plan, None, env, "127.0.0.1")
    for rank in range(2):
        assert (tmp_path / str(rank)).read_text() == mark + env["ODD"]
        seen.append((tmp_path / f"{rank}.leak").read_text())
    assert seen == ["0", "0"]
    assert len(lines) == 2
    assert not any(mark in line or "SECRET_TOKEN=" in line for line in lines)


def test_output_files_of_launch_gloo_are_private(tmp_path):
    (tmp_path / "rank.1").mkdir()
    victim = tmp_path / "victim"
    victim.write_text("precious")
    plan = settings.Settings(hosts="localhost:2", num_proc=2, output_filename=str(tmp_path))
    exec_command = gloo_run._exec_command_fn(plan)
    gloo_run.launch_gloo(["echo", "hello"], exec_command, plan, None, {}, "127.0.0.1")
    assert (tmp_path / "rank.0" / "stdout").stat().st_mode & 0o777 == 0o600
    (tmp_path / "rank.1" / "stdout").unlink()
    (tmp_path / "rank.1" / "stdout").symlink_to(victim)
    with pytest.raises(RuntimeError):
        gloo_run.launch_gloo(["echo", "hello"], exec_command, plan, None, {}, "127.0.0.1")
    assert victim.read_text() == "precious"


def test_remote_call_never_unpickles_a_stranger(echo, canary):
    service, _ = echo
    pair = next(iter(service.addresses().values()))[0]
    for body in payloads(canary):
        with socket.create_connection(pair) as connection:
            own = os.urandom(network.NONCE_BYTES)
            nonce = connection.recv(network.NONCE_BYTES, socket.MSG_WAITALL) + own
            tape = [own]

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

# Where a pickle may be read: after a sum was checked, from the store, which only holders of the job
# key can write to, or from a folder that is ours alone.
ALLOWED = {
    "runner/api.py": 2,
    "runner/elastic/driver.py": 1,
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
