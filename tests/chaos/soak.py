#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Kill workers of one elastic job thousands of times; see README.md.

soak.py --kills 2000 --every 0.5

Kills come in blocks of --block. In the odd blocks every worker may be killed. In the even ones a
worker is left alone, so that its memory and descriptors show what many resets leave behind.
"""

import argparse
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "python" / "shared"), str(HERE)]

import numpy as np  # noqa: E402
from jobs import Job  # noqa: E402
from soak_training import replay  # noqa: E402

STALL_S = 120
TAIL = 200  # bytes that hold the last line of a log
WINDOW = 25  # kills; after the first of them buffers and caches have their size


def size_of(pid):
    """(resident KB, descriptors, threads) of a process; None if it has ended."""
    try:
        text = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
        words = dict(line.split(":", 1) for line in text.splitlines())
        count = len(os.listdir(f"/proc/{pid}/fd"))
        return int(words["VmRSS"].split()[0]), count, int(words["Threads"])
    except (OSError, KeyError):
        return None


def children_of(pid):
    path = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(word) for word in path.read_text(encoding="ascii").split()]


def pid_of(path):
    """Of the worker that writes log.NAME.PID."""
    return int(path.name.rpartition(".")[2])


class Watch:
    """The size of one process over time."""

    def __init__(self, name, pid):
        self.name, self.pid, self.sizes = name, pid, []

    def look(self):
        size = size_of(self.pid)
        if size is not None:
            self.sizes.append(size)

    def growth(self):
        """Medians of (KB, descriptors, threads) after the first resets and at the end."""
        early, late = self.sizes[WINDOW : 2 * WINDOW], self.sizes[-WINDOW:]
        return [
            tuple(map(statistics.median_high, zip(*part, strict=True))) for part in (early, late)
        ]

    def describe(self):
        (kb, files, threads), last = self.growth()
        return (
            f"{self.name}, {len(self.sizes)} kills: {kb} -> {last[0]} KB, "
            f"{files} -> {last[1]} descriptors, {threads} -> {last[2]} threads"
        )

    def check(self):
        first, last = self.growth()
        assert last[0] < 1.1 * first[0] + 1024, f"memory grows: {self.describe()}"
        assert last[1] <= first[1] + 1, f"descriptors are left open: {self.describe()}"
        assert last[2] <= first[2], f"threads are left: {self.describe()}"


class Soak:
    def __init__(self, folder, options):
        self.options = options
        self.random = random.Random(options.seed)
        self.dead, self.kills, self.watches = set(), 0, []
        self.elder = None
        self.job = Job(
            folder / "job",
            HERE / "soak_training.py",
            *("-np", options.ranks, "--min-np", "1", "-H", f"localhost:{options.ranks}"),
            env={"HOROVOD_LOG_LEVEL": "error"},
        )

    def members(self):
        """{log file: (epoch, step)} of the workers that have made a step and live.

        By file, because the kernel gives the number of a worker that has ended to another process.
        """
        found = {}
        for path in set(self.job.folder.glob("log.*")) - self.dead:
            if not self._is_ours(pid_of(path)):
                self.dead.add(path)
                continue
            with open(path, "rb") as file:
                file.seek(max(0, path.stat().st_size - TAIL))
                lines = file.read().decode("ascii").split("\n")[:-1]
            if lines:
                epoch, step, _, _ = lines[-1].split()
                found[path] = (int(epoch), int(step))
        return found

    def _is_ours(self, pid):
        try:
            environment = Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            return False
        return f"TEST_FOLDER={self.job.folder}\0".encode() in environment

    def run(self):
        try:
            began = time.monotonic()
            self.job.wait_until(lambda: len(self.members()) == self.options.ranks, STALL_S)
            launcher = self.job.process.pid
            self.watches = [Watch("launcher", launcher)]
            self.watches += [Watch("agent", pid) for pid in children_of(launcher)]
            for _ in range(self.options.kills):
                time.sleep(self.options.every)
                self._kill_one()
            took = time.monotonic() - began
            self.job.wait_until(lambda: len(self.members()) == self.options.ranks, STALL_S)
            (self.job.folder / "finish").touch()
            self.job.succeed(STALL_S)
            return self._check(took)
        finally:
            self.job.kill()

    def _kill_one(self):
        """Kill a member, not the last one: without any worker the state is lost."""
        victims = []

        def has_victims():
            members = self.members()
            newest = max((epoch for epoch, _ in members.values()), default=0)
            present = sorted(path for path in members if members[path][0] == newest)
            victims[:] = [path for path in present if path != self._spared(present)]
            return len(present) > 1

        self.job.wait_until(has_victims, STALL_S)
        victim = self.random.choice(victims)
        os.kill(pid_of(victim), signal.SIGKILL)
        self.dead.add(victim)
        self.kills += 1
        for watch in self.watches:
            watch.look()
        if self.kills % 100 == 0:
            print(f"{self.kills} kills", flush=True)

    def _spared(self, present):
        """The worker that this block leaves alone, or None."""
        if self.kills // self.options.block % 2 == 0:
            self.elder = None
        elif self.elder is None:
            self.elder = present[0]
            self.watches.append(Watch("worker that was left alone", pid_of(self.elder)))
        return self.elder

    def _check(self, took):
        """Of each step the record of the newest epoch counts; a step that failed was repeated."""
        records = {}
        for path in self.job.folder.glob("log.*"):
            for line in path.read_text(encoding="ascii").splitlines():
                epoch, step, size, loss = line.split()
                found = (int(epoch), int(size), float(loss))
                other = records.get(int(step), found)
                assert found[0] != other[0] or found == other, f"step {step}: {found}, {other}"
                records[int(step)] = max(found, other)
        steps = len(records)
        assert sorted(records) == list(range(steps)), "a step is missing"
        sizes = [records[step][1] for step in range(steps)]
        losses = np.array([records[step][2] for step in range(steps)])
        expected = np.fromiter(replay(sizes), float)
        worst = np.max(np.abs(losses - expected) / np.maximum(expected, 1e-12))
        changes = sum(a != b for a, b in zip(sizes, sizes[1:], strict=False))
        epochs = max(epoch for epoch, _, _ in records.values())
        print(
            f"{self.kills} kills in {took:.0f} s, {steps} steps, {epochs} worlds, {changes} changes"
            f" of size; losses {losses[0]:.3g} to {losses[-1]:.3g}, differ from the replay by at"
            f" most {worst:.1e}"
        )
        assert worst < 1e-6, "the losses are not those of the replay"
        watches = [watch for watch in self.watches if len(watch.sizes) >= 3 * WINDOW]
        for watch in watches:
            print(watch.describe())
        for watch in watches:
            watch.check()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--kills", type=int, default=2000)
    parser.add_argument("--every", type=float, default=0.5, help="seconds between")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--block", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="horovod-soak-") as folder:
        soak = Soak(Path(folder), options)
        try:
            soak.run()
        except AssertionError as error:
            sys.exit(f"FAILED after {soak.kills} kills: {error}")


if __name__ == "__main__":
    main()
