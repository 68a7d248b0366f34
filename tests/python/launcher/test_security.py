# SPDX-License-Identifier: Apache-2.0
"""The job key is nowhere but in the workers' hands, and nothing listens on a wildcard."""

import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest

HOLD = "f=key.$HOROVOD_RANK; cat /proc/self/fd/$HOROVOD_KEY_FD > $f.part; mv $f.part $f; sleep 300"


def keys_of(run, process, count):
    files = [run.cwd / f"key.{i}" for i in range(count)]
    deadline = time.monotonic() + 60
    while not all(f.exists() for f in files):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)
    return [f.read_text().strip() for f in files]


def hide_and_seek(run, flags, count, log, script=HOLD):
    flags = [*flags, "--verbose", "--output-filename", "out"]
    with log.open("w") as file:
        process = run.start(*flags, "bash", "-c", script, stdout=file, stderr=file)
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
        for path in (log.parent / "out").rglob("std*"):
            assert needle not in path.read_bytes()
    assert not any(b"HVD_TEST_MARK=" in line for line in seen), "environment on a command line"


def test_key_is_nowhere(run, tmp_path):
    log = tmp_path / "log"
    keys, seen, environs = hide_and_seek(run, ["-np", 2], 2, log)
    check(keys, seen, environs, log)


LEAKS = {
    "argv": f"exec bash -c '{HOLD}; :' $(cat /proc/self/fd/$HOROVOD_KEY_FD)",
    "environment": f"export LEAK=$(cat /proc/self/fd/$HOROVOD_KEY_FD); exec bash -c '{HOLD}'",
    "log": f"cat /proc/self/fd/$HOROVOD_KEY_FD; {HOLD}",
}


@pytest.mark.parametrize("where", LEAKS)
def test_the_search_finds_what_leaks(run, tmp_path, where):
    """So that finding nothing means something."""
    log = tmp_path / "log"
    found = hide_and_seek(run, ["-np", 1], 1, log, LEAKS[where])
    with pytest.raises(AssertionError):
        check(*found, log)


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
    process.communicate(timeout=120)
    assert addresses == {"0100007F"}  # loopback, as all of these hosts are


def test_rendezvous_survives_strangers(run):
    """Bytes of all kinds at the rendezvous do not disturb the job."""
    import socket

    script = (
        "echo $HOROVOD_GLOO_RENDEZVOUS_PORT > port.part; mv port.part port; "
        "while ! test -e go; do sleep 0.05; done; echo fine"
    )
    process = run.start("-np", 1, "sh", "-c", script)
    deadline = time.monotonic() + 60
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
    out, err = process.communicate(timeout=120)
    for s in idle:
        s.close()
    assert process.returncode == 0 and out == "[0]<stdout>:fine\n", err


def test_key_file_is_closed_to_others_and_goes(run):
    """For wrappers that close descriptors: the same key in a 0600 file in a 0700 folder."""
    script = (
        'stat -c "%a %u" "$HOROVOD_KEY_FILE" "$(dirname "$HOROVOD_KEY_FILE")"; '
        'cmp "$HOROVOD_KEY_FILE" /proc/self/fd/$HOROVOD_KEY_FD && echo "at $HOROVOD_KEY_FILE"'
    )
    result = run("-np", 1, "bash", "-c", script)
    uid = os.geteuid()
    lines = [line.split(":", 1)[1] for line in result.stdout.splitlines()]
    assert lines[:2] == [f"600 {uid}", f"700 {uid}"], result.stderr
    path = Path(lines[2].removeprefix("at "))
    assert path.is_absolute() and not path.exists() and not path.parent.exists()


def test_key_file_goes_when_the_launcher_is_killed(run):
    process = run.start("-np", 1, "sh", "-c", 'echo "$HOROVOD_KEY_FILE"; exec sleep 300')
    path = Path(process.stdout.readline().strip().split(":", 1)[1])
    assert path.exists()
    process.kill()
    process.communicate(timeout=120)
    deadline = time.monotonic() + 60
    while path.parent.exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)


WRAPPER = "import subprocess, sys; sys.exit(subprocess.call(sys.argv[1:], close_fds=True))"
OTHER_FD = (
    "import os, subprocess, sys; r, w = os.pipe(); os.write(w, b'mine'); "
    "os.dup2(r, int(os.environ['HOROVOD_KEY_FD'])); "
    "code = subprocess.call(sys.argv[1:], pass_fds=[int(os.environ['HOROVOD_KEY_FD'])]); "
    "assert os.read(r, 9) == b'mine'; sys.exit(code)"
)


@pytest.mark.parametrize("wrapper", [WRAPPER, OTHER_FD], ids=["closed", "reused"])
def test_ranks_behind_a_wrapper_that_takes_the_descriptor(run, rank, wrapper):
    result = run("-np", 2, sys.executable, "-c", wrapper, *shlex.split(rank))
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("level", ["auth", "mac", "tls", "off"])
def test_levels_of_the_data_plane(run, rank, level):
    env = {"HOROVOD_SHM_DISABLE": "1", "HOROVOD_SECURITY": level}
    result = run("-np", 3, "sh", "-c", rank, env=env)
    assert result.returncode == 0, result.stderr
    assert result.stderr.count("HOROVOD_SECURITY=off: ") == (1 if level == "off" else 0)


def test_levels_that_differ_are_named(run, rank):
    script = f"if [ $HOROVOD_RANK = 1 ]; then export HOROVOD_SECURITY=tls; fi; {rank}"
    env = {"HOROVOD_SHM_DISABLE": "1", "HOROVOD_GLOO_TIMEOUT_SECONDS": "3"}
    result = run("-np", 2, "sh", "-c", script, env=env)
    assert result.returncode != 0
    assert "ranks disagree on HOROVOD_SECURITY" in result.stderr


def test_encryption_without_libcrypto_is_refused(run, rank, tmp_path):
    if not rank.endswith("train"):
        pytest.skip("Python has loaded libcrypto by itself")
    for name in ("libcrypto.so.3", "libcrypto.so.1.1"):
        (tmp_path / name).write_text("not a library")
    env = {"HOROVOD_SHM_DISABLE": "1", "LD_LIBRARY_PATH": str(tmp_path)}
    assert run("-np", 2, "sh", "-c", rank, env=env).returncode == 0
    result = run("-np", 2, "sh", "-c", rank, env={**env, "HOROVOD_SECURITY": "tls"})
    assert result.returncode != 0
    assert "HOROVOD_SECURITY=tls needs AES-256-GCM of OpenSSL's libcrypto" in result.stderr


def test_port_range(run, rank):
    env = {"HOROVOD_PORT_RANGE": "24110-24119", "HOROVOD_SHM_DISABLE": "1"}
    script = f"echo port $HOROVOD_GLOO_RENDEZVOUS_PORT; {rank}"
    result = run("-np", 2, "sh", "-c", script, env=env)
    assert result.returncode == 0, result.stderr
    ports = {int(line.split()[-1]) for line in result.stdout.splitlines() if "port " in line}
    assert len(ports) == 1 and ports <= set(range(24110, 24120))


def test_port_range_that_is_none(run):
    result = run("-np", 1, "true", env={"HOROVOD_PORT_RANGE": "9-1"})
    assert result.returncode == 1
    assert "HOROVOD_PORT_RANGE=9-1 is no range of ports" in result.stderr


# ---- another user of the machine ----

OTHER_USER = 65534
CROWD = r"""
import os, socket, sys

def is_closed(s):
    try:
        return s.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True

def dial(name):
    s = socket.socket(socket.AF_UNIX)
    s.setblocking(False)
    try:
        s.connect("\0" + name)
        os.write(mark, b"x")
    except OSError:
        pass  # the backlog is full, or the mark was seen long ago
    return s

is_flood, mark, user, held = sys.argv[1] == "flood", int(sys.argv[2]), int(sys.argv[3]), []
os.setgid(user)
os.setuid(user)
while True:
    with open("/proc/net/unix") as file:
        names = {line.split()[-1][1:] for line in file if "@horovod-" in line}
    for name in names:
        for _ in range(200 if is_flood else 20):
            held.append(dial(name))
    keep = [] if is_flood else [s for s in held if not is_closed(s)][-800:]
    for s in held:
        if s not in keep:
            s.close()
    held = keep
"""


@pytest.fixture(params=["idle", "flood"])
def crowd(request):
    """A process of another user at every abstract socket of a job; gives a pipe: it is at work."""
    if os.geteuid() != 0:
        pytest.skip("only root can act as a second user")
    ours, theirs = os.pipe()
    os.set_blocking(theirs, False)
    process = subprocess.Popen(
        [sys.executable, "-c", CROWD, request.param, str(theirs), str(OTHER_USER)],
        pass_fds=[theirs],
    )
    os.close(theirs)
    yield ours
    process.kill()
    process.wait()
    os.close(ours)


def test_another_user_cannot_keep_a_job_from_starting(run, rank, crowd):
    """Idle connections and floods, before and while the ranks meet, and while they work."""
    script = f"for i in 1 2 3; do {rank} || exit 1; done; echo done"
    result = run("-np", 4, "sh", "-c", script, timeout=300)
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("done") == 4
    os.set_blocking(crowd, False)
    assert os.read(crowd, 1) == b"x"  # it did find the sockets


def test_output_files_are_private(run, tmp_path):
    result = run("-np", 1, "--output-filename", "out", "echo", "hello")
    assert result.returncode == 0, result.stderr
    for name in ("stdout", "stderr"):
        assert (run.cwd / "out" / "rank.0" / name).stat().st_mode & 0o777 == 0o600


def test_planted_output_files_are_not_written(run, tmp_path):
    """In a folder that others can write, somebody has put links where the output is to go."""
    if os.geteuid() != 0:
        pytest.skip("only root can plant a link of another user")
    victim = tmp_path / "victim"
    victim.write_text("precious")
    folder = run.cwd / "out" / "rank.0"
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    (folder / "stdout").symlink_to(victim)
    os.lchown(folder / "stdout", OTHER_USER, OTHER_USER)
    result = run("-np", 1, "--output-filename", "out", "echo", "hello")
    assert result.returncode != 0
    assert "a link or another user's file is not written to" in result.stderr
    assert victim.read_text() == "precious"
