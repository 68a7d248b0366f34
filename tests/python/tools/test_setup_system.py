# SPDX-License-Identifier: Apache-2.0
"""tools/setup_system.sh: installs no more than is asked for, and needs root only for that.

The script runs with a PATH of its own that holds stand-ins; each notes that it was called."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PLAIN = ("dirname", "sed", "mktemp", "rm", "tr")
GOOD_CC = "cat >/dev/null; exit 0"
# A Python that has everything; "lacks" makes one of its answers a no.
PYTHON = 'case "$2" in *{lacks}*) exit 1 ;; esac; exit 0'


class Machine:
    def __init__(self, folder):
        self.bin = folder / "bin"
        self.log = folder / "log"
        self.bin.mkdir()
        self.log.touch()
        for name in (*PLAIN, "cat", "env"):
            (self.bin / name).symlink_to(shutil.which(name))
        self.put("cc", GOOD_CC)
        self.put("python3", PYTHON.format(lacks="no-such-module"))
        self.put("id", "echo 0")

    def put(self, name, script):
        path = self.bin / name
        path.write_text(f'#!/bin/sh\necho "{name} $*" >>{self.log}\n{script}\n')
        path.chmod(0o755)

    def debian(self, installed="", uid=0, sudo=False):
        self.put("dpkg-query", f'case " {installed} " in *" $4 "*) printf installed ;; esac')
        self.put("apt-get", "")
        self.put("id", f"echo {uid}")
        self.put("sudo", '[ "$1" = -n ] && exit 0; "$@"' if sudo else "exit 1")

    def setup(self, *args):
        return subprocess.run(
            ["/bin/sh", ROOT / "tools/setup_system.sh", *args],
            env={"PATH": str(self.bin), "TMPDIR": str(self.bin.parent)},
            capture_output=True,
            text=True,
            timeout=60,
        )

    def called(self, name):
        return [line for line in self.log.read_text().splitlines() if line.split()[0] == name]


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


def test_nothing_missing_asks_for_nothing(machine):
    machine.debian(uid=1000)
    result = machine.setup("build")
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    for name in ("apt-get", "sudo", "dpkg-query"):
        assert machine.called(name) == []


@pytest.mark.parametrize(
    "break_it,want",
    [
        (lambda m: (m.bin / "cc").unlink(), "gcc libc6-dev"),
        (lambda m: m.put("cc", "cat >/dev/null; exit 1"), "gcc libc6-dev"),
        (lambda m: m.put("python3", PYTHON.format(lacks="ensurepip")), "python3-venv"),
        (lambda m: m.put("python3", PYTHON.format(lacks="Python.h")), "python3-dev"),
    ],
    ids=["no compiler", "no headers of C", "no venv", "no Python.h"],
)
def test_root_on_debian_gets_only_what_is_missing(machine, break_it, want):
    machine.debian()
    break_it(machine)
    result = machine.setup("build")
    assert result.returncode == 0, result.stderr
    install = [line for line in machine.called("apt-get") if " install " in line]
    assert [line.split("recommends ")[1] for line in install] == [want]


def test_any_compiler_will_do(machine):
    machine.debian()
    (machine.bin / "cc").unlink()
    machine.put("clang", GOOD_CC)
    assert machine.setup("build").stderr == ""
    assert machine.called("apt-get") == []


def test_user_on_debian_is_told_the_command(machine):
    machine.debian(uid=1000)
    (machine.bin / "cc").unlink()
    result = machine.setup("build")
    assert result.returncode == 1
    assert "a C compiler" in result.stderr
    assert "run: sudo apt-get install --no-install-recommends gcc libc6-dev\n" in result.stderr
    assert machine.called("apt-get") == []


@pytest.mark.parametrize(
    "manager,command",
    [
        ("dnf", "sudo dnf install gcc glibc-devel python3-devel\n"),
        ("zypper", "sudo zypper install gcc glibc-devel python3-devel\n"),
        ("pacman", "sudo pacman -S --needed gcc python\n"),
        ("apk", "sudo apk add gcc musl-dev linux-headers python3-dev\n"),
        (None, "install them with your system's package manager\n"),
    ],
)
def test_other_systems_are_told_the_command(machine, manager, command):
    (machine.bin / "cc").unlink()
    machine.put("python3", PYTHON.format(lacks="Python.h"))
    if manager:
        machine.put(manager, "")
    result = machine.setup("build")
    assert result.returncode == 1
    assert command in result.stderr and "Python.h" in result.stderr
    assert not manager or machine.called(manager) == []


def test_old_python_is_named(machine):
    machine.debian()
    machine.put("python3", PYTHON.format(lacks="version_info"))
    result = machine.setup("build")
    assert result.returncode == 1
    assert "older than 3.10: set PYTHON" in result.stderr


def test_tests_get_the_rest(machine):
    machine.debian(installed="clang git munge")
    result = machine.setup("test")
    assert result.returncode == 0, result.stderr
    (install,) = [line for line in machine.called("apt-get") if " install " in line]
    words = install.split()
    assert {"openssh-server", "slurm-wlm", "mpich", "libcmocka-dev"} <= set(words)
    assert not {"clang", "git", "munge", "gcc", "python3-dev"} & set(words)


def test_tests_without_root_go_on(machine):
    machine.debian(installed="clang", uid=1000)
    result = machine.setup("test")
    assert result.returncode == 0
    assert "run: sudo apt-get install --no-install-recommends git " in result.stderr


def test_sudo_without_password_is_used(machine):
    machine.debian(uid=1000, sudo=True)
    (machine.bin / "cc").unlink()
    assert machine.setup("build").returncode == 0
    assert any("apt-get install" in line for line in machine.called("sudo"))


@pytest.mark.parametrize(
    "target,want", [("demo", "build"), ("wheel", "build"), ("bench", "build"), ("test", "test")]
)
def test_make_asks_for_the_right_set(target, want):
    env = {k: v for k, v in os.environ.items() if not k.startswith("MAKE")}
    line = subprocess.run(
        ["make", "-n", "-C", ROOT, target], capture_output=True, text=True, check=True, env=env
    ).stdout
    calls = [x for x in line.splitlines() if "setup_system.sh" in x]
    assert calls == [f"tools/setup_system.sh {want}"]
