# SPDX-License-Identifier: Apache-2.0
"""Autotune between two "machines": the same training without it, with it, and from its cache.

    python bench/autotune.py [--rate 1000] [--delays 0 2] [--models layers small]

One rank in each of two network namespaces whose line is limited by tc in both directions. With a
delay the line is a pair of TUN devices, and a relay in this process holds every packet back for so
many milliseconds. Needs root, ip, tc and /dev/net/tun. Printed are medians of the time of a step:
of the first steps, which have the start values, and of the last ones, which have the result of the
tuning. A job without autotune runs by turns with the others: how much its first and last steps
differ is the noise.
"""

import argparse
import collections
import contextlib
import fcntl
import os
import re
import secrets
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

MODELS = {"layers": (40, 25_000), "small": (200, 500)}  # tensors, elements of each
FIRST, SETTLED = range(20, 60), 150
STEPS = 600  # without autotune
STEPS_MAX = 2000
TUNING = {
    "HOROVOD_AUTOTUNE": "1",
    "HOROVOD_AUTOTUNE_WARMUP_SAMPLES": "2",
    "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE": "4",
    "HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES": "12",
}
TUN_SET, TUN_PLAIN = 0x400454CA, 0x1001  # TUNSETIFF; IFF_TUN without a header
PACKET_BYTES = 60000


# ---- a rank ----


def stamp(path):
    return os.stat(path).st_mtime_ns if path and os.path.exists(path) else 0


def rank_main(model):
    import horovod.numpy as hvd
    import numpy as np

    hvd.init()
    count, elements = MODELS[model]
    grads = [np.ones(elements, np.float32) for _ in range(count)]
    cache = os.environ.get("HOROVOD_AUTOTUNE_CACHE", "")
    before, times, ended = stamp(cache), [], None
    for step in range(STEPS_MAX if cache else STEPS):
        began = time.perf_counter()
        handles = []
        for index, grad in enumerate(grads):
            if index % 10 == 0:
                time.sleep(0.0005)  # a backward pass
            handles.append(hvd.allreduce_async(grad, name=f"grad.{index}"))
        for handle in handles:
            hvd.synchronize(handle)
        times.append(1000 * (time.perf_counter() - began))
        if cache and step % 50 == 49:  # the file is written when the tuning ends
            is_over = hvd.broadcast_object([stamp(cache) != before], 0)[0]
            ended = step if is_over and ended is None else ended
            if ended is not None and step >= ended + SETTLED:
                break
    if hvd.rank() == 0:
        first = statistics.median(times[i] for i in FIRST)
        last = statistics.median(times[-SETTLED:])
        values = hvd.metrics()["tunables"]
        text = f"{values['fusion_threshold_bytes'] / 2**20:.3g} MB, "
        text += f"{1000 * values['cycle_time_s']:.3g} ms, {values['flows']} flows, "
        text += f"{values['threshold_percent']} %"
        print(f"RESULT {first:.2f} {last:.2f} {len(times)} {text}", flush=True)
    hvd.shutdown()


# ---- the line ----


def ip(*words):
    subprocess.run(["ip", *map(str, words)], check=True)


def relay(source, sink, delay_s):
    """Passes packets on, each `delay_s` after it has arrived."""
    waiting, is_there = collections.deque(), threading.Semaphore(0)

    def write():
        while True:
            is_there.acquire()
            at, packet = waiting.popleft()
            time.sleep(max(0, at - time.monotonic()))
            with contextlib.suppress(OSError):  # the device is not up yet
                os.write(sink, packet)

    threading.Thread(target=write, daemon=True).start()
    while True:
        packet = os.read(source, 65536)
        waiting.append((time.monotonic() + delay_s, packet))
        is_there.release()


class Line:
    """Two namespaces, joined by a veth pair or, if there is a delay, by TUN devices."""

    def __init__(self, rate, delay_ms):
        self.names = [f"hvdtune{os.getpid()}{side}" for side in "ab"]
        self.addresses = ["10.81.0.1", "10.81.0.2"]
        for name in self.names:
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        if delay_ms:
            self.join_tun(delay_ms / 1000)
        else:
            peer = ["type", "veth", "peer", "name", "line0", "netns", self.names[1]]
            ip("link", "add", "line0", "netns", self.names[0], *peer)
        for name, address in zip(self.names, self.addresses, strict=True):
            ip("-n", name, "addr", "add", f"{address}/24", "dev", "line0")
            ip("-n", name, "link", "set", "line0", "up")
            tbf = ["rate", f"{rate}mbit", "burst", "256kb", "latency", "100ms"]
            command = ["tc", "-n", name, "qdisc", "add", "dev", "line0", "root", "tbf", *tbf]
            subprocess.run(command, check=True)

    def join_tun(self, delay_s):
        ends = []
        for side, name in enumerate(self.names):
            device = f"hvdt{os.getpid() % 100000}{'ab'[side]}"
            ends.append(os.open("/dev/net/tun", os.O_RDWR))
            fcntl.ioctl(ends[-1], TUN_SET, struct.pack("16sH", device.encode(), TUN_PLAIN))
            ip("link", "set", device, "mtu", PACKET_BYTES)
            ip("link", "set", device, "netns", name)
            ip("-n", name, "link", "set", device, "name", "line0")
        for source, sink in (ends, ends[::-1]):
            threading.Thread(target=relay, args=(source, sink, delay_s), daemon=True).start()

    def remove(self):
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], check=False)

    def job(self, model, env, port):
        """(first, last, steps, values) as rank 0 prints them."""
        key, processes = secrets.token_hex(32), []
        for rank, name in enumerate(self.names):
            place = {"RANK": rank, "WORLD_SIZE": 2, "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 1}
            place.update(MASTER_ADDR=self.addresses[0], MASTER_PORT=port, HOROVOD_KEY=key, **env)
            command = ["ip", "netns", "exec", name, sys.executable, __file__, "--rank", model]
            environment = {**os.environ, **{k: str(v) for k, v in place.items()}}
            processes.append(
                subprocess.Popen(command, env=environment, text=True, stdout=subprocess.PIPE)
            )
        outputs = [process.communicate(timeout=240)[0] for process in processes]
        found = re.search(r"RESULT (\S+) (\S+) (\d+) (.*)", outputs[0])
        return float(found[1]), float(found[2]), int(found[3]), found[4]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rank", choices=MODELS, help=argparse.SUPPRESS)
    parser.add_argument("--rate", type=int, default=1000, help="Mbit/s")
    parser.add_argument("--delays", type=float, nargs="*", default=[0, 2], help="ms")
    parser.add_argument("--models", nargs="*", choices=MODELS, default=list(MODELS))
    args = parser.parse_args()
    if args.rank:
        rank_main(args.rank)
        return
    port = 29700
    print("line, model, job: ms per step first, last; steps; values at the end")
    for delay_ms in args.delays:
        line = Line(args.rate, delay_ms)
        try:
            for model in args.models:
                with tempfile.TemporaryDirectory() as folder:
                    tuned = {**TUNING, "HOROVOD_AUTOTUNE_CACHE": Path(folder) / "cache"}
                    jobs = {"plain": {}, "autotune": tuned, "cached": tuned, "plain again": {}}
                    for what, env in jobs.items():
                        port += 1
                        first, last, steps, values = line.job(model, env, port)
                        print(
                            f"{args.rate} Mbit/s {delay_ms:g} ms, {model}, {what}: "
                            f"{first:.1f} {last:.1f}; {steps}; {values}",
                            flush=True,
                        )
        finally:
            line.remove()


if __name__ == "__main__":
    main()
