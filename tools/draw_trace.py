#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draw docs/trace.svg, the picture of docs/timeline.md, from docs/trace.json.

    tools/draw_trace.py             write the picture
    tools/draw_trace.py --check     fail if the picture is not what the trace says
    tools/draw_trace.py --record    run two ranks with a timeline and write docs/trace.json first

docs/trace.json is what `horovod-timeline merge` wrote for PROGRAM below, one event per line.
Recording needs horovodrun and Python with Horovod and NumPy in the PATH. Colours follow the
reader's choice of a light or dark page.
"""

import json
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

from draw_steps import save

DOCS = Path(__file__).resolve().parent.parent / "docs"
TRACE, TARGET = DOCS / "trace.json", DOCS / "trace.svg"
PROGRAM = """\
import time

import numpy as np

import horovod.numpy as hvd

hvd.init()
gradients = {"fc": 1_000_000, "conv2": 500_000, "conv1": 250_000}
gradients = {name: np.ones(count, np.float32) for name, count in gradients.items()}
for step in range(2):
    hvd.barrier()
    time.sleep(0.004 * hvd.rank())
    handles = []
    for name, gradient in gradients.items():
        handles.append(hvd.allreduce_async(gradient, name=name))
        time.sleep(0.002)
    for handle in handles:
        hvd.synchronize(handle)
"""
STEP = 1  # the second: memory is warm, and the ranks still negotiate
WIDTH, LEFT, RIGHT, TOP, ROW, BAR = 760, 150, 20, 62, 24, 15

STYLE = """
text { font: 12px system-ui, sans-serif; fill: #1f2328 }
.title { font-weight: 600 } .small { font-size: 11px; fill: #59636e }
.grid { stroke: #d1d9e0 } .tick { stroke: #1f2328; stroke-width: 2 }
.wait { fill: #c8d1da } .work { fill: #0969da }
.arrow { stroke: #bc4c00; fill: none; marker-end: url(#tip) } .tip { fill: #bc4c00 }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 } .small { fill: #9198a1 } .grid { stroke: #3d444d }
  .tick { stroke: #e6edf3 } .wait { fill: #484f58 } .work { fill: #4493f8 }
  .arrow { stroke: #f0883e } .tip { fill: #f0883e }
}
"""
MARKER = (
    '<defs><marker id="tip" markerWidth="8" markerHeight="8" refX="7" refY="3" orient="auto">'
    '<path d="M0,0 L7,3 L0,6 z" class="tip"/></marker></defs>'
)


def record():
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "train.py").write_text(PROGRAM, encoding="utf-8")
        run = ["horovodrun", "-np", "2", "--timeline-filename", "t.json", "--timeline-all-ranks"]
        for command in (
            [*run, "python", "train.py"],
            ["horovod-timeline", "merge", "t.json", "-o", "merged.json"],
        ):
            subprocess.run(command, cwd=folder, check=True)
        trace = json.loads(Path(folder, "merged.json").read_text(encoding="utf-8"))
    lines = ",\n".join(json.dumps(event) for event in trace["traceEvents"])
    TRACE.write_text(f'{{"traceEvents": [\n{lines}\n]}}\n', encoding="utf-8")


class Call:
    """One allreduce on one rank; times in microseconds."""

    def __init__(self, rank, name):
        self.rank, self.name = rank, name
        self.negotiate = self.start = self.end = self.submit = None


def read_calls(events, step):
    """The calls of one step, by rank and tensor."""
    names = {
        (e["pid"], e["tid"]): e["args"]["name"] for e in events if e.get("name") == "thread_name"
    }
    open_bars, found = defaultdict(list), defaultdict(list)
    for event in events:
        place = (event["pid"], event.get("tid"))
        if not names.get(place, "").startswith("allreduce."):
            continue
        if event["ph"] == "B":
            open_bars[place].append(event)
            if event["name"] == "NEGOTIATE_ALLREDUCE":
                call = Call(place[0], names[place].removeprefix("allreduce."))
                call.negotiate = event["ts"]
                found[place].append(call)
            elif event["name"] == "ALLREDUCE":
                found[place][-1].start = event["ts"]
        elif event["ph"] == "E" and open_bars[place].pop()["name"] == "ALLREDUCE":
            found[place][-1].end = event["ts"]
    for event in events:
        if event.get("name") == "SUBMIT":
            calls = found.get((event["pid"], event["tid"]), [])
            # The submission lies before the start of its batch and after the call before it.
            for i, call in enumerate(calls):
                if event["ts"] <= call.start and (i == 0 or event["ts"] >= calls[i - 1].end):
                    call.submit = event["ts"]
    return [calls[step] for calls in found.values()]


def draw(calls):
    calls = sorted(calls, key=lambda call: (call.rank, call.submit))
    first = min(call.negotiate for call in calls)
    span = max(call.end for call in calls) - first
    scale = (WIDTH - LEFT - RIGHT) / span
    ranks = sorted({call.rank for call in calls})
    rows = {}
    y = TOP
    head = []
    for rank in ranks:
        head.append(f'<text x="10" y="{y + 13}" class="title">rank {rank}</text>')
        for call in (c for c in calls if c.rank == rank):
            rows[rank, call.name] = y
            y += ROW
        y += 14
    bottom = y - 10

    def at(us):
        return LEFT + (us - first) * scale

    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {bottom + 32}" role="img">',
        "<title>One step of two ranks in a merged trace</title>",
        f"<style>{STYLE}</style>",
        MARKER,
    ]
    x = LEFT
    for kind, label in (("wait", "NEGOTIATE_ALLREDUCE"), ("work", "ALLREDUCE")):
        lines.append(f'<rect x="{x}" y="14" width="11" height="11" class="{kind}"/>')
        lines.append(f'<text x="{x + 16}" y="24" class="small">{label}</text>')
        x += 36 + 7.5 * len(label)
    lines.append(f'<line x1="{x + 4}" y1="12" x2="{x + 4}" y2="27" class="tick"/>')
    lines.append(f'<text x="{x + 12}" y="24" class="small">submitted</text>')
    lines.append(f'<line x1="{x + 84}" y1="19" x2="{x + 108}" y2="19" class="arrow"/>')
    lines.append(f'<text x="{x + 114}" y="24" class="small">waited for this rank</text>')
    every = next(ms for ms in (1, 2, 5, 10, 20, 50, 100) if span / 1000 / ms < 10)
    for ms in range(0, int(span / 1000) + 1, every):
        x = at(first + 1000 * ms)
        lines.append(
            f'<line x1="{x:.1f}" y1="{TOP - 14}" x2="{x:.1f}" y2="{bottom}" class="grid"/>'
        )
        if x < WIDTH - 40:
            lines.append(f'<text x="{x + 3:.1f}" y="{bottom + 14}" class="small">{ms} ms</text>')
    lines.extend(head)
    for call in calls:
        y = rows[call.rank, call.name]
        lines.append(
            f'<text x="{LEFT - 10}" y="{y + 12}" text-anchor="end" class="small">{call.name}</text>'
        )
        for kind, begin, end in (
            ("wait", call.negotiate, call.start),
            ("work", call.start, call.end),
        ):
            width = max((end - begin) * scale, 1)
            lines.append(
                f'<rect x="{at(begin):.1f}" y="{y}" width="{width:.1f}" height="{BAR}" rx="2" '
                f'class="{kind}"/>'
            )
        x = at(call.submit)
        lines.append(
            f'<line x1="{x:.1f}" y1="{y - 2}" x2="{x:.1f}" y2="{y + BAR + 2}" class="tick"/>'
        )
    for name in dict.fromkeys(call.name for call in calls):
        same = [call for call in calls if call.name == name]
        last = max(same, key=lambda call: call.submit)
        for other in same:
            if other is not last:
                y1, y2 = rows[last.rank, name] + BAR / 2, rows[other.rank, name] + BAR / 2
                lines.append(
                    f'<line x1="{at(last.submit):.1f}" y1="{y1}" x2="{at(other.end):.1f}" '
                    f'y2="{y2}" class="arrow"/>'
                )
    return "\n".join([*lines, "</svg>", ""])


def main():
    if sys.argv[1:] == ["--record"]:
        record()
    events = json.loads(TRACE.read_text(encoding="utf-8"))["traceEvents"]
    save(TARGET, draw(read_calls(events, STEP)), "docs/trace.json says")


if __name__ == "__main__":
    main()
