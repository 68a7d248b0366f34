# SPDX-License-Identifier: Apache-2.0
"""Start an elastic job with the real launcher, and see what became of it."""

import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

from launching import clean_environment, find_launcher

HERE = Path(__file__).resolve().parent
DEADLINE_S = 300  # bounds a hang; a busy machine is slow
LOOK_S = 0.02


class Job:
    """A running horovodrun: its options, the path of a script, settings for that.

    `prefix` is a command that runs horovodrun elsewhere, in a network namespace say.
    """

    def __init__(self, folder, script, *options, env=None, prefix=()):
        self.folder = Path(folder)
        self.folder.mkdir(exist_ok=True)
        self.leave_s = 10  # what is left so long after the launcher has ended was left behind
        self.output_path = self.folder / "output"
        names = {"TEST_FOLDER": str(self.folder), "PYTHONPATH": str(HERE), **(env or {})}
        command = [*prefix, find_launcher(), *options, sys.executable, script]
        with open(self.output_path, "w", encoding="utf-8") as output:
            self.process = subprocess.Popen(
                [str(part) for part in command],
                env=clean_environment(names),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def output(self):
        return self.output_path.read_text(encoding="utf-8", errors="replace")

    def wait(self, deadline_s=DEADLINE_S):
        """The exit code; AssertionError with what was printed if it does not end."""
        try:
            code = self.process.wait(deadline_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"the job hangs:\n{self.describe()}") from None
        assert not (self.folder / "wrong").exists(), self.describe()
        return code

    def succeed(self, deadline_s=DEADLINE_S):
        code = self.wait(deadline_s)
        assert code == 0, self.describe()
        assert self.left_behind() == [], self.describe()

    def kill(self):
        """End the launcher and whatever it has started."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        for pid in self.workers():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def workers(self):
        """Process ids of everything that has our folder in its environment."""
        mark = f"TEST_FOLDER={self.folder}\0".encode()
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == self.process.pid:
                continue
            try:
                if mark in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
        return found

    def left_behind(self):
        """What is still there a while after the launcher has ended."""
        end = time.monotonic() + self.leave_s
        while (pids := self.workers()) and time.monotonic() < end:
            time.sleep(LOOK_S)
        return pids

    # ---- what workers have written ----

    def lines(self, pattern):
        return [
            line.split()
            for path in sorted(self.folder.glob(pattern))
            for line in path.read_text(encoding="utf-8").splitlines()
        ]

    def result(self):
        """(step, total, size in the end, sizes of all steps), which all ranks must agree on."""
        lines = self.lines("result.*")
        assert lines, self.describe()
        assert all(line == lines[0] for line in lines), lines
        step, total, size, *sizes = map(int, lines[0])
        assert len(lines) == size, (lines, self.describe())
        return step, total, size, sizes

    def wait_until(self, condition, deadline_s=DEADLINE_S):
        end = time.monotonic() + deadline_s
        while not condition():
            assert self.process.poll() is None, self.describe()
            if time.monotonic() > end:
                self.kill()
                raise AssertionError(f"the job hangs:\n{self.describe()}")
            time.sleep(LOOK_S)

    def steps(self):
        """The largest step that any worker has logged."""
        return max((int(line[1]) for line in self.lines("log.*")), default=0)

    def live(self):
        """{pid: last line} of the workers that have logged something and are alive."""
        found = {}
        for path in self.folder.glob("log.*"):
            pid = int(path.name.rpartition(".")[2])
            lines = path.read_text(encoding="utf-8").splitlines()
            if lines and Path(f"/proc/{pid}").exists():
                found[pid] = lines[-1].split()
        return found

    def describe(self):
        logs = "\n".join(f"{p.name}: {p.read_text()[-300:]}" for p in self.folder.glob("log.*"))
        wrong = [" ".join(line) for line in self.lines("wrong")]
        return f"{wrong}\n{self.output[-6000:]}\n{logs[-3000:]}"


class Hosts:
    """A discovery script, and the hosts that it prints."""

    def __init__(self, folder, text):
        self._file = Path(folder) / "hosts"
        self.script = Path(folder) / "discover.sh"
        self.script.write_text(f"#!/bin/sh\ncat {self._file}\n", encoding="utf-8")
        self.script.chmod(stat.S_IRWXU)
        self.set(text)

    def set(self, text):
        new = self._file.with_suffix(".new")
        new.write_text("".join(f"{host}\n" for host in text.split()), encoding="utf-8")
        new.replace(self._file)
