# SPDX-License-Identifier: Apache-2.0
"""Agents of horovodrun inside processes that a cluster manager starts: Spark tasks, Ray actors.

horovodrun talks to an agent over two byte streams, which ssh usually carries. Where a manager owns
the processes, the streams pass through a store of libhorovod that the driver serves: whoever knows
its key can connect, and everything on the wire is sealed.

    driver                                                    task or actor
    Relay: serves the store                                   serve(): registers, then runs
    horovodrun --rsh-agent PROGRAM --> main() <== store ==>   `horovodrun --agent` when asked to

Everything else is the launcher's: it starts, supervises and stops the ranks, prefixes their output
and finds the root cause of a failure. If a task is killed, its agent's stdin closes and the agent
kills the ranks. If the driver dies, the store does, too, and serve() returns.

A stream is a sequence of entries, each in its own scope, which the reader deletes. A writer is at
most 2 * WINDOW entries ahead of its reader. Start reading at Relay and serve().
"""

import contextlib
import itertools
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from horovod.runner.http.store import Client, Server, join_address
from horovod.runner.launcher import find_horovodrun
from horovod.runner.mailbox import Folder

BEAT_S = 1.0
LOST_S = 15.0  # without a beat, a task counts as lost
CHUNK_BYTES = 65536
WINDOW = 16
FOREVER_S = 86400
STOP_S = 6  # an agent ends its ranks in at most 5 s

TASKS, BEATS, NEXT, LOST, CLOSED = "tasks", "beats", "next", "lost", "closed"
START, OVER = b"start", b"over"

# The Python of a rank is that of its task, which only the task knows.
TASK_PYTHON = "_HOROVOD_TASK_PYTHON"
RANK_PYTHON = ["/bin/sh", "-c", f'exec "${TASK_PYTHON}" "$@"', "sh"]


class RelayError(RuntimeError):
    """The store is gone, or somebody did not answer in time."""


@contextlib.contextmanager
def _store_errors():
    from horovod.common.library import native

    try:
        yield
    except (native.StatusError, OSError) as error:
        raise RelayError(str(error)) from error


def _wait(client, scope, name):
    value = None
    while value is None:
        value = client.wait(scope, name, FOREVER_S)
    return value


class Reader:
    """The receiving end of a stream. One thread, with its own client."""

    def __init__(self, client, name):
        self._client, self._name, self._n = client, name, 0

    def read(self):
        """The next bytes, whenever they come; b"" at the end."""
        scope = f"{self._name}.{self._n}"
        with _store_errors():
            data = _wait(self._client, scope, "bytes")
            self._client.delete(scope)
            if self._n % WINDOW == WINDOW - 1:
                self._client.put(f"{self._name}.read.{self._n // WINDOW}", "all", b"1")
        self._n += 1
        return data


class Writer:
    """The sending end of a stream. One thread, with its own client."""

    def __init__(self, client, name):
        self._client, self._name, self._n = client, name, 0

    def write(self, data):
        """Blocks while the reader is too far behind; b"" ends the stream."""
        with _store_errors():
            if self._n % WINDOW == 0 and self._n >= 2 * WINDOW:
                scope = f"{self._name}.read.{self._n // WINDOW - 2}"
                _wait(self._client, scope, "all")
                self._client.delete(scope)
            self._client.put(f"{self._name}.{self._n}", "bytes", data)
        self._n += 1


# ---- in the driver ----


class Relay:
    """The store of a job, and the program that connects horovodrun to the agents of its tasks.

    hosts: our addresses that the tasks can reach.
    """

    def __init__(self, hosts):
        self.key = os.urandom(32)
        self._server = Server(hosts[0], self.key)
        for host in hosts[1:]:
            self._server.listen(host)
        self.addresses = ",".join(join_address(host, self._server.port) for host in hosts)
        self._folder = tempfile.TemporaryDirectory(prefix="horovod-relay-")
        told = {"addresses": self.addresses, "key": self.key.hex()}
        Folder(self._folder.name).put("relay", json.dumps(told).encode())
        self.program = str(Path(self._folder.name) / "rsh")
        self._write_program()

    def _write_program(self):
        path = os.pathsep.join(os.path.abspath(entry) for entry in sys.path)
        words = [sys.executable, "-m", "horovod.runner.relay", self._folder.name]
        line = " ".join(shlex.quote(word) for word in words)
        text = f'#!/bin/sh\nPYTHONPATH={shlex.quote(path)} exec {line} "$@"\n'
        Path(self.program).write_text(text, encoding="utf-8")
        Path(self.program).chmod(0o700)

    def find(self, name):
        """What the task of this name has said about itself; None if it has not registered."""
        value = self._server.get(TASKS, name)
        return None if value is None else json.loads(value)

    def beat(self, name):
        """Changes as long as the task lives; None: it has left."""
        return self._server.get(BEATS, name) or None

    def set_lost(self, name):
        """The manager says that this task is gone: horovodrun need not wait for its beat."""
        self._server.put(LOST, name, b"1")

    def release(self, name):
        """Let the task return; also one that registers later."""
        number = int(self._server.get(NEXT, name) or 0)
        self._server.put(f"open.{name}.{number}", "word", OVER)

    def close(self):
        """The store and the program are gone afterwards; tasks that still wait return."""
        self._server.stop()
        self._folder.cleanup()


# ---- in a task ----


class _Beat(threading.Thread):
    """Tells the driver that this task lives, and notices when the driver or its launcher do not."""

    def __init__(self, client, name):
        super().__init__(daemon=True, name="horovod-beat")
        self._client, self._name = client, name
        self._is_over = threading.Event()
        self._watched = None  # of the session that runs: (number, function)

    def run(self):
        for number in itertools.count():
            try:
                with _store_errors():
                    self._client.put(BEATS, self._name, b"%d" % number)
                    self._look()
            except RelayError:
                self._end_session()
                return
            if self._is_over.wait(BEAT_S):
                return

    def _look(self):
        watched = self._watched
        if watched is None:
            return
        if self._client.get(CLOSED, f"{self._name}.{watched[0]}") is not None:
            self._end_session()

    def _end_session(self):
        watched, self._watched = self._watched, None
        if watched is not None:
            watched[1]()

    def watch(self, session, stop):
        self._watched = (session, stop)

    def leave(self):
        self._is_over.set()
        self.join()
        try:
            with _store_errors():
                self._client.put(BEATS, self._name, b"")
        except RelayError:
            pass  # the driver is gone, which is as good


def reachable(addresses, key):
    """The first of these addresses at which the store answers."""
    error = None
    for address in addresses.split(","):
        try:
            with _store_errors():
                Client(address, None, key).get(TASKS, "")
            return address
        except RelayError as trouble:
            error = trouble
    raise RelayError(f"the driver can't be reached at {addresses}: {error}")


def serve(addresses, key, name, about, env):
    """Register as `name` with the driver and run agents for it until it says that the job is over.

    about: what the driver is to know, as JSON can hold it. env: the environment of the ranks.
    """
    address = reachable(addresses, key)
    driver = address.rpartition(":")[0].strip("[]")
    # The launcher listens for its ranks where this task has reached the driver.
    env = {**env, "SSH_CONNECTION": f"{driver} 0 0.0.0.0 0", TASK_PYTHON: sys.executable}
    env.setdefault("PYTHONPATH", os.pathsep.join(entry for entry in sys.path if entry))
    client = Client(address, None, key)
    beat = _Beat(Client(address, None, key), name)
    beat.start()
    try:
        with _store_errors():
            client.put(TASKS, name, json.dumps(about).encode())
            for session in itertools.count():
                if _wait(client, f"open.{name}.{session}", "word") != START:
                    return
                _run_agent(address, key, f"{name}.{session}", session, env, beat)
    except RelayError:
        return  # the driver is gone, and with it whoever wanted to know
    finally:
        beat.leave()


def _run_agent(address, key, stream, session, env, beat):
    agent = subprocess.Popen(
        [find_horovodrun(), "--agent"], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    lock = threading.Lock()

    def close_input():
        with lock, contextlib.suppress(OSError):
            agent.stdin.close()

    def feed():
        reader = Reader(Client(address, None, key), f"{stream}.in")
        with contextlib.suppress(RelayError, OSError, ValueError):
            for data in iter(reader.read, b""):
                agent.stdin.write(data)
                agent.stdin.flush()
        close_input()

    beat.watch(session, close_input)
    threading.Thread(target=feed, daemon=True, name="horovod-feed").start()
    writer = Writer(Client(address, None, key), f"{stream}.out")
    try:
        for data in iter(lambda: os.read(agent.stdout.fileno(), CHUNK_BYTES), b""):
            writer.write(data)
        writer.write(b"")
    finally:
        beat.watch(session, lambda: None)
        close_input()
        _end(agent)
        agent.stdout.close()


def _end(agent):
    try:
        agent.wait(STOP_S)
    except subprocess.TimeoutExpired:
        agent.kill()  # the kernel kills its ranks then
        agent.wait()


# ---- what horovodrun starts instead of ssh ----


class _Connection:
    """Our stdin and stdout, connected to the agent that a task starts for them."""

    def __init__(self, folder, host):
        told = json.loads(Folder(folder).get("relay"))
        self._address, self._key, self._host = told["addresses"], bytes.fromhex(told["key"]), host
        self._client = self._connect()
        with _store_errors():
            self._session = int(self._client.get(NEXT, host) or 0)
            self._client.put(NEXT, host, b"%d" % (self._session + 1))
            self._client.put(f"open.{host}.{self._session}", "word", START)
        self._has_ended = threading.Event()

    def _connect(self):
        return Client(self._address, None, self._key)

    def _send(self):
        writer = Writer(self._connect(), f"{self._host}.{self._session}.in")
        with contextlib.suppress(RelayError):
            for data in iter(lambda: os.read(0, CHUNK_BYTES), b""):
                writer.write(data)
            writer.write(b"")

    def _receive(self):
        reader = Reader(self._connect(), f"{self._host}.{self._session}.out")
        with contextlib.suppress(RelayError, OSError):
            for data in iter(reader.read, b""):
                view = memoryview(data)
                while view:
                    view = view[os.write(1, view) :]
        self._has_ended.set()

    def run(self):
        """Until the agent has ended; RelayError if its task is lost."""
        for target in (self._send, self._receive):
            threading.Thread(target=target, daemon=True).start()
        try:
            self._watch()
        finally:
            with contextlib.suppress(RelayError), _store_errors():
                self._client.put(CLOSED, f"{self._host}.{self._session}", b"1")

    def _watch(self):
        last, since = None, time.monotonic()
        while not self._has_ended.wait(BEAT_S):
            with _store_errors():
                beat = self._client.get(BEATS, self._host)
                is_lost = self._client.get(LOST, self._host) is not None
            if beat != last:
                last, since = beat, time.monotonic()
            if is_lost or time.monotonic() - since > LOST_S:
                raise RelayError(f"{self._host} is lost: its process has ended or hangs")


def main(folder, host):
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        _Connection(folder, host).run()
    except RelayError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    code = main(sys.argv[1], sys.argv[2])
    sys.stderr.flush()
    os._exit(code)  # a thread may be inside read(0)
