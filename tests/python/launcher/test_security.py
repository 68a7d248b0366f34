# SPDX-License-Identifier: Apache-2.0
"""The job key is nowhere but in the workers' hands, and nothing listens on a wildcard."""

import time
from pathlib import Path

import pytest

HOLD = "f=key.$HOROVOD_RANK; cat /proc/self/fd/$HOROVOD_KEY_FD > $f.part; mv $f.part $f; sleep 300"


def keys_of(run, process, count):
    files = [run.cwd / f"key.{i}" for i in range(count)]
    deadline = time.monotonic() + 30
    while not all(f.exists() for f in files):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)
    return [f.read_text().strip() for f in files]


def hide_and_seek(run, flags, count, log):
    with log.open("w") as file:
        process = run.start(*flags, "--verbose", "bash", "-c", HOLD, stdout=file, stderr=file)
        keys = keys_of(run, process, count)
        seen = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                seen.append((entry / "cmdline").read_bytes())
            except OSError:
                continue
        environs = [Path(f"/proc/{p}/environ").read_bytes() for p in run.processes()]
        process.terminate()
        process.wait(20)
    return keys, seen, environs


def check(keys, seen, environs, log):
    assert len(set(keys)) == 1 and len(keys[0]) == 64
    raw = bytes.fromhex(keys[0])
    for needle in (keys[0].encode(), keys[0].upper().encode(), raw):
        assert not any(needle in line for line in seen)
        assert not any(needle in env for env in environs)
        assert needle not in log.read_bytes()
    assert not any(b"HVD_TEST_MARK=" in line for line in seen), "environment on a command line"


def test_key_is_nowhere(run, tmp_path):
    log = tmp_path / "log"
    keys, seen, environs = hide_and_seek(run, ["-np", 2], 2, log)
    check(keys, seen, environs, log)


def test_key_is_nowhere_with_ssh(run, sshd, tmp_path):
    run.env.update(sshd.env())
    log = tmp_path / "log"
    flags = ["-np", 2, "-H", f"localhost:1,{sshd.host}:1", *sshd.options]
    keys, seen, environs = hide_and_seek(run, flags, 2, log)
    check(keys, seen, environs, log)


def test_keys_differ_between_jobs(run):
    script = "cat /proc/self/fd/$HOROVOD_KEY_FD"
    first = run("-np", 1, "bash", "-c", script).stdout
    second = run("-np", 1, "bash", "-c", script).stdout
    assert first != second


def listeners():
    """(address, inode) of every listening TCP socket."""
    found = []
    for name in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A":
                found.append((fields[1].split(":")[0], fields[9]))
    return found


def sockets_of(pid):
    inodes = set()
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = fd.readlink().name
        except OSError:
            continue
        if target.startswith("socket:["):
            inodes.add(target[8:-1])
    return inodes


@pytest.mark.parametrize("is_spread", [False, True])
def test_no_wildcard_listener(run, request, is_spread):
    flags = ["-np", 2]
    if is_spread:
        sshd = request.getfixturevalue("sshd")
        run.env.update(sshd.env())
        flags += ["-H", f"localhost:1,{sshd.host}:1", *sshd.options]
    process = run.start(*flags, "bash", "-c", HOLD)
    keys_of(run, process, 2)
    ours = set().union(*(sockets_of(p) for p in run.processes()))
    addresses = {address for address, inode in listeners() if inode in ours}
    process.terminate()
    process.communicate(timeout=20)
    assert addresses == {"0100007F"}  # loopback, as all of these hosts are


def test_rendezvous_survives_strangers(run):
    """Bytes of all kinds at the rendezvous do not disturb the job."""
    import socket

    script = (
        "echo $HOROVOD_GLOO_RENDEZVOUS_PORT > port.part; mv port.part port; "
        "while ! test -e go; do sleep 0.05; done; echo fine"
    )
    process = run.start("-np", 1, "sh", "-c", script)
    deadline = time.monotonic() + 20
    while not (run.cwd / "port").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    port = int((run.cwd / "port").read_text())
    for message in (
        b"PUT /worker_addresses/x:0 HTTP/1.0\r\nContent-Length: 9\r\n\r\ncposix\nsys",
        b"GET / HTTP/1.0\r\n\r\n",
        b"\xff" * 70000,
        b"",
    ):
        with socket.create_connection(("127.0.0.1", port)) as s:
            s.settimeout(10)
            try:
                s.sendall(message)
                s.shutdown(socket.SHUT_WR)
                while s.recv(4096):
                    pass
            except OSError:
                pass
    idle = []
    for _ in range(200):  # more than may be pending
        s = socket.socket()
        s.setblocking(False)
        s.connect_ex(("127.0.0.1", port))
        idle.append(s)
    (run.cwd / "go").touch()
    out, err = process.communicate(timeout=20)
    for s in idle:
        s.close()
    assert process.returncode == 0 and out == "[0]<stdout>:fine\n", err
