#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Do to an elastic job, at random, what happens to machines; see README.md.

chaos.py --seed 1 --events 20 [--machines]
"""

import argparse
import contextlib
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1] / "python"
sys.path[:0] = [str(TESTS / "shared"), str(TESTS / "elastic")]

from counting_replay import replay  # noqa: E402
from jobs import Hosts, Job  # noqa: E402
from namespaces import Namespaces, built  # noqa: E402
from ssh_server import SshServer  # noqa: E402

STALL_S = 60
MOST_WORKERS = 4
EVENTS = ("kill", "kill", "pair", "stop", "nap", "term", "hosts", "hosts", "wait")
WORLDS = ("localhost:4", "localhost:2 127.0.0.1:2", "localhost:3", "localhost:2 127.0.0.1:1")
CUTS_S = (0.1, 1, 4)  # up to the limit for a hung worker, and beyond it


class Machines:
    """Two network namespaces: the launcher and some workers in one, the others in the other."""

    def __init__(self, pair, server):
        near, far = pair.addresses
        self.cut = pair.cut
        self.worlds = (f"{near}:2 {far}:2", f"{near}:1 {far}:3", f"{near}:3 {far}:1", f"{near}:2")
        self.prefix = ("ip", "netns", "exec", pair.names[0])
        self.options = server.options
        self.env = server.env()
        self._near = os.stat(f"/run/netns/{pair.names[0]}").st_ino

    def is_near(self, pid):
        try:
            return os.stat(f"/proc/{pid}/ns/net").st_ino == self._near
        except OSError:
            return False


@contextlib.contextmanager
def two_machines(folder):
    """Machines, with an sshd on the far one; skips where namespaces are not allowed."""
    with built(Namespaces(), "ssh", "ssh-keygen", "unshare", "/usr/sbin/sshd") as pair:
        place = Path(folder) / "sshd"
        place.mkdir()
        server = SshServer(place, pair.addresses[1], ["ip", "netns", "exec", pair.names[1]])
        server.start()
        try:
            yield Machines(pair, server)
        finally:
            server.stop()


class Chaos:
    """One job and what is done to it."""

    def __init__(self, folder, seed, events, machines=None):
        self.random = random.Random(seed)
        self.events = events
        self.log = []
        self.doomed = set()
        self.machines = machines
        self.worlds = machines.worlds if machines else WORLDS
        self.kinds = (*EVENTS, "cut", "cut") if machines else EVENTS
        self.hosts = Hosts(folder, self.worlds[0])
        self.job = Job(
            folder / "job",
            TESTS / "elastic" / "counting.py",
            *("-np", "3", "--min-np", "1", "--max-np", str(MOST_WORKERS)),
            *("--host-discovery-script", str(self.hosts.script)),
            *(machines.options if machines else ()),
            prefix=machines.prefix if machines else (),
            env={
                **(machines.env if machines else {}),
                "TEST_STEPS": "0",
                "TEST_ROLLBACK": str(seed % 2),
                "TEST_COMMIT_EVERY": str(self.random.choice((1, 1, 3))),
                "HOROVOD_HUNG_ERROR_SECONDS": "2",
            },
        )
        if machines:
            self.job.leave_s = 40  # an agent that was cut off waits 30 s for its launcher

    def run(self):
        try:
            self._make_progress(2)
            for _ in range(self.events):
                time.sleep(self.random.choice((0, 0.01, 0.1, 0.5)))
                self._do(self.random.choice(self.kinds))
                if self.random.random() < 0.5:
                    self._make_progress(1)
            self.hosts.set(self.worlds[0])
            self._make_progress(3)
            (self.job.folder / "finish").touch()
            self.job.succeed(120)
            step, total, size, sizes = self.job.result()
            assert step == len(sizes) and total == replay(sizes), self.job.describe()
            return step, size, sizes
        finally:
            self.job.kill()

    def _do(self, event):
        """One event; `-` in the log if it would have taken the last worker that has the state."""
        if event == "hosts":
            self.hosts.set(self.random.choice(self.worlds))
        elif event == "wait":
            time.sleep(self.random.random())
        elif event == "cut":
            event = event if self._healthy() else "-"
            self._cut(self.random.choice(CUTS_S) if event == "cut" else 0)
        else:
            count = 2 if event == "pair" else 1
            victims = self._choose(count)
            event = event if victims else "-"
            for pid in victims:
                self._strike(event, pid)
        self.log.append(event)

    def _healthy(self):
        """Members of the present world that nothing was done to, and that no cut takes away."""
        live = self.job.live()
        newest = max((int(line[4]) for line in live.values()), default=0)
        healthy = [p for p in live if int(live[p][4]) == newest and p not in self.doomed]
        return [p for p in healthy if self.machines is None or self.machines.is_near(p)]

    def _choose(self, count):
        """Workers to be struck, such that a healthy member of the present world is left."""
        live = self.job.live()
        victims = self.random.sample(sorted(live), min(count, len(live)))
        return victims if set(self._healthy()) - set(victims) else []

    def _cut(self, seconds):
        """Take the line between the machines down for a while; the near side goes on alone."""
        if seconds > 0:
            self.machines.cut()
            time.sleep(seconds)
            self.machines.cut(False)

    def _strike(self, event, pid):
        if event == "nap":
            self._signal(pid, signal.SIGSTOP)
            time.sleep(self.random.choice((0.05, 1, 3)))
            self._signal(pid, signal.SIGCONT)
            return
        self.doomed.add(pid)
        numbers = {"stop": signal.SIGSTOP, "term": signal.SIGTERM}
        self._signal(pid, numbers.get(event, signal.SIGKILL))

    @staticmethod
    def _signal(pid, number):
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass  # it has ended by itself

    def _make_progress(self, steps):
        goal = self.job.steps() + steps
        self.job.wait_until(lambda: self.job.steps() >= goal, STALL_S)


def run(seed, events, is_split=False):
    """One seed; (steps, size in the end, sizes of all steps). AssertionError if it failed."""
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="horovod-chaos-"))
        machines = stack.enter_context(two_machines(folder)) if is_split else None
        chaos = Chaos(Path(folder), seed, events, machines)
        try:
            return chaos.run()
        except AssertionError as error:
            raise AssertionError(f"seed {seed} after {' '.join(chaos.log)}: {error}") from None


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seeds", help="FIRST:COUNT")
    parser.add_argument("--events", type=int, default=20)
    parser.add_argument("--machines", action="store_true", help="two, and the line may be cut")
    arguments = parser.parse_args()
    first, count = arguments.seed, 1
    if arguments.seeds:
        first, count = map(int, arguments.seeds.split(":"))
    failed = 0
    for seed in range(first, first + count):
        began = time.monotonic()
        try:
            step, size, sizes = run(seed, arguments.events, arguments.machines)
        except AssertionError as error:
            failed += 1
            print(f"seed {seed} FAILED: {error}", flush=True)
            continue
        changes = sum(a != b for a, b in zip(sizes, sizes[1:], strict=False))
        took = time.monotonic() - began
        print(f"seed {seed}: {step} steps, {changes} changes of size, {took:.1f} s", flush=True)
    print(f"{count - failed} of {count} seeds passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
