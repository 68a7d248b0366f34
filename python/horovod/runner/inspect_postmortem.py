# SPDX-License-Identifier: Apache-2.0
"""horovod-inspect DIR: files that ranks wrote when their job broke, or on request.

Every rank writes a snapshot (docs/snapshot.md) into HOROVOD_POSTMORTEM_DIR: when the job breaks, on
SIGUSR1 and by hvd.dump(). Printed are the root cause, which ranks wrote nothing, what each rank
waited for, and the last events of all ranks in the order of their wall clocks.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

_OPS, _EVENTS = 3, 30
_REASONS = {"signal": "on SIGUSR1", "dump": "by hvd.dump()"}
_SAME_S = 5.0  # files that were written within this time show one moment


def read_folder(folder: Path) -> dict[int, dict[str, Any]]:
    """The snapshots by rank; files that are not one are left out."""
    found = {}
    for path in sorted(folder.glob("rank.*.json")):
        try:
            snapshot = json.loads(path.read_text(encoding="utf-8"))
            found[int(snapshot["rank"])] = snapshot
        except (OSError, ValueError, KeyError, TypeError):
            print(f"{path} is not a snapshot", file=sys.stderr)
    return dict(sorted(found.items()))


def _causes(ranks):
    """Lines: each cause, with the ranks that give it."""
    told: dict[str, list[int]] = {}
    for rank, snapshot in ranks.items():
        is_asked = snapshot.get("reason") in _REASONS
        text = snapshot.get("cause", {}).get("text", "" if is_asked else "no cause")
        if not text:
            continue
        told.setdefault(text, []).append(rank)
    for text, by in told.items():
        yield f"cause, by rank {','.join(map(str, by))}: {text}"


def _reasons(ranks):
    """Lines: which files were written on request, and which of them are older than the last."""
    last = max(snapshot.get("time_s", 0.0) for snapshot in ranks.values())
    told: dict[str, list[int]] = {}
    for rank, snapshot in ranks.items():
        age = last - snapshot.get("time_s", 0.0)
        how = _REASONS.get(snapshot.get("reason"), "")
        older = f", {age:.1f} s before the last file" if age > _SAME_S else ""
        if how or older:
            told.setdefault(f"wrote this {how or 'when the job broke'}{older}", []).append(rank)
    for text, by in told.items():
        yield f"rank {','.join(map(str, by))} {text}"


def _waits(rank, snapshot):
    yield f"rank {rank} on {snapshot.get('host', '?')} (pid {snapshot.get('pid')}):"
    ops = [op for s in snapshot.get("process_sets", []) for op in s.get("ops", [])]
    running = [r for s in snapshot.get("process_sets", []) for r in s.get("running", [])]
    for op in ops[:_OPS]:
        missing = f", missing rank {op['missing']}" if op.get("missing") else ""
        yield f"  {op['name']} ({op['state']}) for {op['age_s']:.1f} s{missing}"
    if len(ops) > _OPS:
        yield f"  and {len(ops) - _OPS} more"
    for run in running:
        waits = f", waits for rank {run['awaits']}" if run.get("awaits") else ""
        yield f"  runs {run['name']}: {run['state']} for {run['age_s']:.1f} s{waits}"
    if not ops and not running:
        yield "  nothing was pending"
    for link in snapshot.get("links", []):
        if link.get("state") != "up":
            yield f"  rank {link['rank']} is {link['state']} ({link.get('silent_s', 0):.1f} s)"


def _events(ranks):
    all_events = [
        (snapshot["time_s"] - event["age_s"], rank, event)
        for rank, snapshot in ranks.items()
        for event in snapshot.get("events", [])
    ]
    all_events.sort(key=lambda item: (item[0], item[1], item[2]["number"]))
    end = max((time for time, *_ in all_events), default=0.0)
    for time, rank, event in all_events[-_EVENTS:]:
        yield f"  {time - end:+9.4f} s  rank {rank}  {event['event']} {event['name']}"


def tell(ranks: dict[int, dict[str, Any]]) -> list[str]:
    """The story, line by line."""
    size = max(snapshot.get("size", 0) for snapshot in ranks.values())
    lines = [*_causes(ranks), *_reasons(ranks)]
    absent = [str(rank) for rank in range(size) if rank not in ranks]
    if absent:
        lines.append(f"rank {','.join(absent)} wrote nothing: killed, stopped or never started")
    for rank, snapshot in ranks.items():
        lines += _waits(rank, snapshot)
    return [*lines, "last events:", *_events(ranks)]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="horovod-inspect", description=__doc__.split("\n", 1)[0])
    parser.add_argument("folder", type=Path, help="what HOROVOD_POSTMORTEM_DIR was")
    ranks = read_folder(parser.parse_args(arguments).folder)
    if not ranks:
        print("there is no rank.*.json", file=sys.stderr)
        return 1
    print("\n".join(tell(ranks)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
