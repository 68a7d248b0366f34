# SPDX-License-Identifier: Apache-2.0
"""horovod-timeline: merges the traces of all ranks into one, on rank 0's clock.

`HOROVOD_TIMELINE=t.json HOROVOD_TIMELINE_ALL_RANKS=1` makes every rank write a trace: t.json,
t.json.rank1, t.json.rank2, ... Each states which rank it is and how far its clock was from rank
0's, give or take an error. In the merged trace a rank is a process and a tensor a thread of it.
Arrows lead from the rank that submitted a tensor last to its completion on every rank: the ranks
that waited point at the one they waited for. Traces of the PyTorch profiler become processes
beside their ranks. See docs/timeline.md.
"""

from __future__ import annotations

import argparse
import glob
import gzip
import json
import os
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field

DRIFT = 20e-6  # by which a clock may be off after a second without a measurement
PROFILER_PIDS = 1_000_000  # first process number of a profiler's trace, per rank
INSIDE_US = 0.001  # an arrow ends in a bar, not at its very end


class TraceError(Exception):
    """A file that is not what it should be; the text names it."""


@dataclass
class Clock:
    """What to add to a rank's time to get rank 0's, in nanoseconds."""

    syncs: list[tuple[int, int, int]] = field(default_factory=list)  # at, offset, error

    def best(self, at_ns: float) -> tuple[int, int]:
        """Offset and error at a time of the rank: the measurement that is best for it."""
        if not self.syncs:
            return 0, 0
        at, offset, error = min(self.syncs, key=lambda s: s[2] + abs(at_ns - s[0]) * DRIFT)
        return offset, int(error + abs(at_ns - at) * DRIFT)


@dataclass
class RankTrace:
    """The trace of one rank, as it wrote it."""

    path: str
    rank: int
    size: int
    host: str
    start_ns: int
    wall_us: int
    clock: Clock
    events: list[dict]

    def time_us(self, ts: float, origin_ns: int) -> float:
        """A time of this trace on rank 0's clock, in microseconds since `origin_ns`."""
        at_ns = self.start_ns + ts * 1000
        return round((at_ns + self.clock.best(at_ns)[0] - origin_ns) / 1000, 3)


@dataclass
class Done:
    """A tensor of a batch that has completed on a rank, on rank 0's clock."""

    rank: int
    tid: int
    submitted_us: float
    submit_shown_us: float
    begin_us: float
    end_us: float


def load_json(path: str) -> object:
    """The contents of a trace, compressed or not; TraceError names a file that is none."""
    try:
        opener = gzip.open if path.endswith(".gz") else open
        with opener(path, "rt", encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError) as error:
        raise TraceError(f"{path}: not a trace: {error}") from error


def find_traces(path: str) -> list[str]:
    """The files of all ranks that belong to the trace of rank 0."""
    pattern = re.compile(re.escape(os.path.basename(path)) + r"\.rank(\d+)$")
    others = (p for p in glob.glob(glob.escape(path) + ".rank*"))
    numbered = [(int(m.group(1)), p) for p in others if (m := pattern.match(os.path.basename(p)))]
    return [path, *(p for _, p in sorted(numbered))]


def load_trace(path: str) -> RankTrace:
    """Read the trace of one rank."""
    events = load_json(path)
    if not isinstance(events, list) or not all(isinstance(e, dict) for e in events):
        raise TraceError(f"{path}: not a trace of Horovod")
    who = next((e["args"] for e in events if e.get("name") == "horovod_rank"), None)
    start = next((e["args"] for e in events if e.get("name") == "process_name"), {})
    if who is None:
        raise TraceError(
            f"{path}: does not say which rank wrote it; trace with HOROVOD_TIMELINE_ALL_RANKS=1"
        )
    syncs = [e["args"] for e in events if e.get("name") == "horovod_clock"]
    clock = Clock([(s["at_ns"], s["offset_ns"], s["error_ns"]) for s in syncs])
    return RankTrace(
        path,
        who["rank"],
        who["size"],
        who["host"],
        who["start_ns"],
        start.get("start_time_since_epoch_in_micros", 0),
        clock,
        events,
    )


def rank_of_profile(path: str, profile: dict) -> int:
    """The rank that a profiler's trace is of: what it says itself, else a number in its name."""
    info = profile.get("distributedInfo")
    if isinstance(info, dict) and isinstance(info.get("rank"), int):
        return info["rank"]
    match = re.search(r"rank[_-]?(\d+)", os.path.basename(path))
    if match is None:
        raise TraceError(f"{path}: of which rank? Say it: RANK:{path}, or name it ...rank3...")
    return int(match.group(1))


class Merge:
    """Collects the events of the merged trace."""

    def __init__(self, traces: list[RankTrace]):
        self.traces = {t.rank: t for t in traces}
        if len(self.traces) != len(traces):
            raise TraceError("two of the traces are of the same rank")
        # The rank whose trace began first, on rank 0's clock: so no time is negative.
        self.origin_ns = min(t.start_ns + t.clock.best(t.start_ns)[0] for t in traces)
        self.events: list[dict] = []
        self.done: dict[tuple[str, int], list[Done]] = {}
        self.arrows = 0
        self.last_us = 0.0  # of the last event of the rank that is being added

    def head(self, pid: int, sort: float, label: str, note: str = "") -> None:
        """Name a process of the merged trace."""
        for name, args in (
            ("process_name", {"name": label}),
            ("process_sort_index", {"sort_index": sort}),
            *((("process_labels", {"labels": note}),) if note else ()),
        ):
            self.events.append({"ph": "M", "pid": pid, "name": name, "args": args})

    def add_rank(self, trace: RankTrace) -> None:
        """All events of one rank."""
        size = max(t.size for t in self.traces.values())
        error_us = max((s[2] for s in trace.clock.syncs), default=0) / 1000
        note = "rank 0's clock" if trace.rank == 0 else f"clock error at most {error_us:.0f} us"
        if trace.rank != 0 and not trace.clock.syncs:
            note = "clock not measured"
        self.head(trace.rank, trace.rank * 10, f"rank {trace.rank} of {size} on {trace.host}", note)
        names: dict[int, str] = {}
        submits: dict[int, tuple[float, float]] = {}
        stacks: dict[int, list[dict]] = {}
        self.last_us = 0.0
        for event in trace.events:
            self._add(trace, event, names, submits, stacks)

    def _add(self, trace: RankTrace, event: dict, names: dict, submits: dict, stacks: dict) -> None:
        phase, tid = event.get("ph"), event.get("pid", 0)
        if phase == "M":
            if event["name"] == "process_name" and tid > 0:
                names[tid] = event["args"]["name"]
                args = {"name": names[tid]}
                self.events.append(
                    {"ph": "M", "pid": trace.rank, "tid": tid, "name": "thread_name", "args": args}
                )
            return
        moved = {**event, "pid": trace.rank, "tid": tid}
        # Another measurement of the clock must not put a rank's events out of their order.
        moved["ts"] = max(trace.time_us(event["ts"], self.origin_ns), self.last_us)
        self.last_us = moved["ts"]
        if event.get("name") == "SUBMIT":
            submitted = trace.time_us(event["args"]["submitted"], self.origin_ns)
            submits[tid] = (submitted, moved["ts"])
        elif event.get("name") == "CYCLE_START":
            moved["s"] = "p"
        elif phase == "B":
            stacks.setdefault(tid, []).append(moved)
        elif phase == "E" and stacks.get(tid):
            self._end(trace.rank, moved, stacks[tid].pop(), names, submits)
        self.events.append(moved)

    def _end(self, rank: int, end: dict, begin: dict, names: dict, submits: dict) -> None:
        batch, tid = begin.get("args", {}).get("batch"), end["tid"]
        if batch is None or "args" not in end or tid not in submits:
            return  # not a batch, cancelled, or submitted before the trace
        submitted, shown = submits.pop(tid)
        done = Done(rank, tid, submitted, shown, begin["ts"], end["ts"])
        self.done.setdefault((names.get(tid, ""), batch), []).append(done)

    def add_arrows(self) -> None:
        """From the submit of the last rank to the completion on every rank."""
        for (name, batch), ranks in self.done.items():
            if len(ranks) < 2:
                continue
            last = max(ranks, key=lambda d: d.submitted_us)
            for done in ranks:
                self._arrow(name, batch, last, done)

    def _arrow(self, name: str, batch: int, last: Done, done: Done) -> None:
        self.arrows += 1
        common = {"cat": "collective", "name": f"{name} waits for rank {last.rank}"}
        common["id"] = self.arrows
        args = {"batch": batch, "late_us": round(last.submitted_us - done.submitted_us, 3)}
        end_us = max(done.begin_us, done.end_us - INSIDE_US)
        begin_us = min(last.submit_shown_us, end_us)  # clocks may be off by their errors
        self.events.append(
            {**common, "ph": "s", "pid": last.rank, "tid": last.tid, "ts": begin_us, "args": args}
        )
        self.events.append(
            {**common, "ph": "f", "bp": "e", "pid": done.rank, "tid": done.tid, "ts": end_us}
        )

    def add_profile(self, path: str, rank: int | None) -> None:
        """A trace of torch.profiler; its times are of its machine's wall clock."""
        profile = load_json(path)
        if not isinstance(profile, dict) or not isinstance(profile.get("traceEvents"), list):
            raise TraceError(f"{path}: not a trace of the PyTorch profiler")
        rank = rank_of_profile(path, profile) if rank is None else rank
        if rank not in self.traces:
            raise TraceError(f"{path}: is of rank {rank}, of which there is no trace")
        trace = self.traces[rank]
        base_us = profile.get("baseTimeNanoseconds", 0) / 1000 - trace.wall_us
        pids: dict[object, int] = {}
        for event in profile["traceEvents"]:
            old = event.get("pid", 0)
            if old not in pids:
                pids[old] = PROFILER_PIDS * (rank + 1) + len(pids)
                self.head(pids[old], rank * 10 + 1, f"rank {rank}: profiler, {old}")
            if event.get("ph") == "M" and event.get("name", "").startswith("process_"):
                continue
            moved = {**event, "pid": pids[old]}
            if isinstance(moved.get("id"), (int, str)):
                moved["id"] = f"{rank}.{moved['id']}"  # arrows of ranks must not meet
            if "ts" in moved:
                moved["ts"] = trace.time_us(moved["ts"] + base_us, self.origin_ns)
            self.events.append(moved)

    def result(self) -> dict:
        """The merged trace, in order of time."""
        head = [e for e in self.events if e.get("ph") == "M"]
        rest = [e for e in self.events if e.get("ph") != "M"]
        # Stable: of equal times, each rank's order counts.
        rest.sort(key=lambda e: e.get("ts", 0))
        return {"traceEvents": head + rest, "displayTimeUnit": "ms"}


def merge(paths: Iterable[str], profiles: Iterable[tuple[int | None, str]] = ()) -> dict:
    """Merge traces of ranks, and profiler traces given as (rank or None, path), into one."""
    traces = [load_trace(path) for path in paths]
    if not traces:
        raise TraceError("no trace to merge")
    merged = Merge(traces)
    for trace in sorted(traces, key=lambda t: t.rank):
        merged.add_rank(trace)
    merged.add_arrows()
    for rank, path in profiles:
        merged.add_profile(path, rank)
    return merged.result()


def late_ranks(trace: dict) -> list[tuple[int, int, float]]:
    """By rank: how many tensors waited for it, and how long in seconds; the worst rank first."""
    found: dict[int, tuple[int, float]] = {}
    for event in trace["traceEvents"]:
        if event.get("ph") == "s" and event.get("cat") == "collective":
            count, late_us = found.get(event["pid"], (0, 0.0))
            found[event["pid"]] = (count + 1, late_us + max(0.0, event["args"]["late_us"]))
    return sorted(((r, c, us / 1e6) for r, (c, us) in found.items()), key=lambda x: -x[2])


def profile_argument(text: str) -> tuple[int | None, str]:
    """RANK:FILE or FILE."""
    match = re.match(r"(\d+):(.+)$", text)
    return (int(match.group(1)), match.group(2)) if match else (None, text)


def main(argv: list[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="horovod-timeline", description=__doc__.split("\n\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("merge", help="merge the traces of all ranks into one")
    one.add_argument(
        "trace", nargs="+", help="rank 0's trace (the others beside it are found), or all of them"
    )
    one.add_argument("-o", "--output", required=True, help="file to write; .gz compresses it")
    one.add_argument(
        "--profile",
        action="append",
        default=[],
        type=profile_argument,
        metavar="[RANK:]FILE",
        help="a trace of the PyTorch profiler to put beside its rank; may be repeated",
    )
    args = parser.parse_args(argv)
    paths = find_traces(args.trace[0]) if len(args.trace) == 1 else args.trace
    try:
        trace = merge(paths, args.profile)
        opener = gzip.open if args.output.endswith(".gz") else open
        with opener(args.output, "wt", encoding="utf-8") as file:
            json.dump(trace, file)
    except (TraceError, OSError) as error:
        print(f"horovod-timeline: {error}", file=sys.stderr)
        return 1
    print(f"{args.output}: {len(paths)} ranks, {len(trace['traceEvents'])} events")
    for rank, count, seconds in late_ranks(trace)[:3]:
        print(f"rank {rank} submitted last {count} times; the others waited {seconds:.3f} s for it")
    return 0


if __name__ == "__main__":
    sys.exit(main())
