# SPDX-License-Identifier: Apache-2.0
"""Ranks behind a real sshd: same job, same guarantees."""

import os
import re
import signal
import time
from pathlib import Path

import pytest
from shells import STUBBORN, UP


@pytest.fixture
def remote(run, sshd):
    """run() with two ranks here and two behind ssh."""
    run.hosts = f"localhost:2,{sshd.host}:2"
    run.env.update(sshd.env())
    run.flags = ["-np", 4, "-H", run.hosts, *sshd.options]
    return run


def test_ranks_here_and_there(remote, sshd):
    show = 'echo "$HOROVOD_HOSTNAME $HOROVOD_LOCAL_RANK $HOROVOD_CROSS_RANK $PWD"'
    result = remote(*remote.flags, "sh", "-c", show)
    assert result.returncode == 0, result.stderr
    lines = sorted(result.stdout.splitlines())
    here = remote.cwd
    assert lines == [
        f"[0]<stdout>:localhost 0 0 {here}",
        f"[1]<stdout>:localhost 1 0 {here}",
        f"[2]<stdout>:{sshd.host} 0 1 {here}",
        f"[3]<stdout>:{sshd.host} 1 1 {here}",
    ]


def test_environment_there(remote):
    odd = {"WITH_QUOTES": "a'b\"c $x `y`\nnext", "CUDA_VISIBLE_DEVICES": "5", "OLDPWD": "/x"}
    names = ("WITH_QUOTES", "CUDA_VISIBLE_DEVICES", "HOROVOD_GLOO_RENDEZVOUS_ADDR")
    values = " ".join(f'"${name}"' for name in names)
    script = f'test $HOROVOD_RANK = 2 && printf "%s|%s|%s\\n" {values} || true'
    result = remote(*remote.flags, "sh", "-c", script, env={**remote.env, **odd})
    assert result.returncode == 0, result.stderr
    text = result.stdout.replace("[2]<stdout>:", "")
    assert text == "a'b\"c $x `y`\nnext||127.0.0.1\n"


def test_failure_there(remote, sshd):
    script = "test $HOROVOD_RANK = 3 && { echo cause >&2; exit 7; }; sleep 300"
    result = remote(*remote.flags, "sh", "-c", script)
    assert result.returncode == 7
    assert f"rank 3 on {sshd.host} exited with code 7" in result.stderr
    assert "    <stderr> cause\n" in result.stderr


def start(remote, script):
    process = remote.start(*remote.flags, "sh", "-c", script)
    deadline = time.monotonic() + 60
    while not all((remote.cwd / f"up.{i}").exists() for i in range(4)):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)
    return process


def test_kill_9_of_the_launcher(remote):
    process = start(remote, STUBBORN)
    process.kill()
    process.wait()
    assert remote.wait_gone(10) == []


def test_ctrl_c(remote):
    process = start(remote, STUBBORN)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=120)
    assert process.returncode == 130
    assert remote.wait_gone(2) == []


def test_lost_connection(remote, sshd):
    process = start(remote, UP + "sleep 300")
    ssh = [
        p
        for p in remote.processes()
        if Path(f"/proc/{p}/cmdline").read_bytes().startswith(b"/usr/bin/ssh\0")
    ]
    assert len(ssh) == 1
    os.kill(ssh[0], signal.SIGKILL)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 1
    assert f"host {sshd.host}: the connection to its agent was lost" in err
    assert remote.wait_gone(10) == []


def test_wrong_key(remote, sshd, tmp_path):
    os.system(f"ssh-keygen -q -t ed25519 -N '' -f {tmp_path}/other")
    flags = ["-np", 2, "-H", f"{sshd.host}:2", "-p", sshd.port, "-i", tmp_path / "other"]
    result = remote(*flags, "true")
    assert result.returncode == 1
    assert f"ssh not successful for host {sshd.host}" in result.stderr
    assert "Permission denied" in result.stderr
    trial = f"ssh -o BatchMode=yes -p {sshd.port} -i {tmp_path}/other {sshd.host} true"
    assert f"Try it by hand: {trial}" in result.stderr
    assert "ssh-copy-id" in result.stderr


def test_nobody_listens(remote, sshd):
    result = remote("-np", 1, "-H", f"{sshd.host}:1", "-p", 1, "true")
    assert result.returncode == 1
    assert "Connection refused" in result.stderr and "attempt 5 of 5" in result.stderr
    assert "No sshd listens there" in result.stderr


def test_changed_host_key_is_refused(remote, sshd):
    assert remote(*remote.flags, "true").returncode == 0
    known = sshd.folder / "known_hosts"
    kept = known.read_text()
    fields = (sshd.folder / "id.pub").read_text().split()
    known.write_text(f"[{sshd.host}]:{sshd.port} {fields[0]} {fields[1]}\n")
    try:
        result = remote(*remote.flags, "true")
    finally:
        known.write_text(kept)
    assert result.returncode == 1
    assert "HOST IDENTIFICATION HAS CHANGED" in result.stderr


def test_silent_host_is_named(remote, sshd, tmp_path):
    """A host that accepts but never speaks: the ladder talks, then the time limit ends it."""
    import socket

    with socket.socket() as listener:
        listener.bind((sshd.host, 0))
        listener.listen()
        port = listener.getsockname()[1]
        result = remote(
            "-np", 2, "-H", f"localhost:1,{sshd.host}:1", "-p", port, "--start-timeout", 5, "true"
        )
    assert result.returncode == 1
    assert re.search(rf"waiting \d+ s for {sshd.host}: ssh has not connected yet", result.stderr)
    assert "not up after 5 s (--start-timeout)" in result.stderr


def test_output_of_a_chatty_login_shell_is_skipped(remote, sshd):
    folder = sshd.folder / "bin"
    plain = (folder / "ssh").read_text()
    (folder / "ssh").write_text(plain.replace("exec /usr", "echo welcome to $HOSTNAME\nexec /usr"))
    try:
        result = remote(*remote.flags, "echo", "x")
    finally:
        (folder / "ssh").write_text(plain)
    assert result.returncode == 0
    assert "welcome" not in result.stdout


def test_launcher_missing_there(remote, sshd, tmp_path):
    """Behind ssh neither our path nor the PATH has the program."""
    folder = sshd.folder / "bin"
    plain = (folder / "ssh").read_text()
    (folder / "ssh").write_text("#!/bin/sh\necho 'sh: horovodrun: not found' >&2\nexit 127\n")
    try:
        result = remote(*remote.flags, "true")
    finally:
        (folder / "ssh").write_text(plain)
    assert result.returncode == 1
    assert "there is no horovodrun at" in result.stderr


def test_doctor(remote, sshd):
    result = remote("--doctor", "-H", remote.hosts, *sshd.options)
    assert result.returncode == 0, result.stdout
    assert f"{sshd.host}: ssh ok" in result.stdout
    assert "Gbit/s" in result.stdout
    assert result.stdout.splitlines()[-1].startswith("verdict: fit")


def test_doctor_names_the_bad_host(remote, sshd):
    result = remote("--doctor", "-H", f"{remote.hosts},nosuch.invalid:1", *sshd.options)
    assert result.returncode == 1
    assert "problem: nosuch.invalid: ssh not successful" in result.stdout
    assert "verdict: NOT fit: 1 problem" in result.stdout


def test_kubeflow_rule(remote, sshd, tmp_path):
    """With the operator's agent named, its script is called instead of ssh."""
    result = remote(
        *remote.flags, "true", env={**remote.env, "OMPI_MCA_plm_rsh_agent": "/etc/mpi/kubexec.sh"}
    )
    assert result.returncode == 1
    assert "/etc/mpi/kubexec.sh" in result.stderr
