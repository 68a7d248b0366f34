#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draw docs/failure.svg, the picture of docs/elastic.md, from docs/failure.json.

    tools/draw_failure.py             write the picture
    tools/draw_failure.py --check     fail if the picture is not what the file says
    tools/draw_failure.py --record    kill a worker of a real job and write docs/failure.json first

Recording runs bench/elastic.py; it needs horovodrun and Python with Horovod and NumPy in the PATH.
Times are in milliseconds after the kill. Colours follow the reader's choice of a light or dark
page.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from draw_steps import save

ROOT = Path(__file__).resolve().parent.parent
SOURCE, TARGET = ROOT / "docs" / "failure.json", ROOT / "docs" / "failure.svg"
BEFORE_MS, AFTER_MS = 40, 30  # around what happens
WIDTH, LEFT, RIGHT, TOP, ROW, BAR = 760, 120, 20, 84, 30, 16

STYLE = """
text { font: 12px system-ui, sans-serif; fill: #1f2328 }
.small { font-size: 11px; fill: #59636e } .grid { stroke: #d1d9e0 }
.step { fill: #0969da } .meet { fill: #c8d1da } .start { fill: #8c6fd1 } .lost { fill: #bc4c00 }
.mark { stroke: #bc4c00; stroke-dasharray: 3 2 } .event { font-size: 11px; fill: #bc4c00 }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 } .small { fill: #9198a1 } .grid { stroke: #3d444d }
  .step { fill: #4493f8 } .meet { fill: #6e7681 } .start { fill: #8f7bd6 } .lost { fill: #f0883e }
  .mark { stroke: #f0883e } .event { fill: #f0883e }
}
"""


LEGEND = {
    "step": "step (after a meeting: and sync)",
    "lost": "step that fails",
    "meet": "meets: shutdown() and init()",
    "start": "starts, imports, waits",
}


def record():
    with tempfile.TemporaryDirectory() as folder:
        command = ["python", ROOT / "bench" / "elastic.py", "--kills", "1", "--logs", folder]
        subprocess.run([*command, "--json", f"{folder}/figures"], check=True)
        figures = json.loads(Path(folder, "figures").read_text(encoding="utf-8"))
        (kill,) = figures["kills"]
        workers = [read_worker(path, kill) for path in Path(folder).glob("log.*")]
    workers.sort(key=lambda worker: worker["steps"][0][0])
    full = workers[-1]["steps"][0][0]
    workers = [cut(worker, -BEFORE_MS, full + AFTER_MS) for worker in workers]
    lines = ",\n".join(json.dumps(worker) for worker in workers)  # the newcomer is the last
    SOURCE.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


def read_worker(path, kill):
    """Steps as (time, size) and meetings as (begin, end), in milliseconds after the kill."""

    def ms(word):
        return round(1e3 * (float(word) - kill), 2)

    def rows(name):
        text = path.with_name(f"{name}{path.suffix}").read_text(encoding="ascii")
        return [line.split() for line in text.splitlines()]

    return {
        "start": [ms(word) for word in rows("start")[0]],
        "steps": [(ms(at), int(size)) for at, _, size in rows("log")],
        "meetings": [(ms(begin), ms(end)) for _, begin, end in rows("meet")],
    }


def cut(worker, begin, end):
    return {
        "start": worker["start"],
        "steps": [step for step in worker["steps"] if begin <= step[0] <= end],
        "meetings": [meeting for meeting in worker["meetings"] if begin <= meeting[1] <= end],
    }


def moments(workers):
    """[(time, text)] of what happens after the kill."""
    small = min(size for worker in workers for _, size in worker["steps"])
    survivors = [worker for worker in workers if worker["meetings"]]
    newcomer = workers[-1]
    begins = [worker["meetings"][0][0] for worker in survivors]
    ends = [worker["meetings"][0][1] for worker in survivors]
    firsts = [next(at for at, size in w["steps"] if size == small) for w in survivors]
    return [
        (0.0, "killed"),
        (max(begins), "detected"),
        (max(ends), "regrouped"),
        (max(firsts), f"first step of {small}"),
        (newcomer["steps"][0][0], f"first step of {small + 1}"),
    ]


def bars(worker, begin):
    """(class, begin, end) of what a worker does, one after the other."""
    ends = [(at, "step") for at, _ in worker["steps"]]
    for index, (first, last) in enumerate(worker["meetings"]):
        ends += [(first, "lost" if index == 0 else "step"), (last, "meet")]
    if worker["start"][0] > 0:
        begin = worker["start"][0]
        ends.append((worker["start"][1], "start"))
    elif not worker["meetings"]:
        ends.append((0.0, "lost"))
    for end, kind in sorted(ends):
        yield kind, begin, end
        begin = end


def draw(workers):
    begin, end = -BEFORE_MS, max(at for worker in workers for at, _ in worker["steps"])
    scale = (WIDTH - LEFT - RIGHT) / (end - begin)
    bottom = TOP + ROW * len(workers)

    def x(ms):
        return f"{LEFT + (ms - begin) * scale:.1f}"

    size = f"0 0 {WIDTH} {bottom + 28}"
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{size}" role="img">',
        "<title>One failure in a job of four workers</title>",
        f"<style>{STYLE}</style>",
    ]
    at = 10
    for kind, label in LEGEND.items():
        lines.append(f'<rect x="{at}" y="10" width="11" height="11" class="{kind}"/>')
        lines.append(f'<text x="{at + 16}" y="20" class="small">{label}</text>')
        at += 36 + 6 * len(label)
    for ms in range(0, int(end) + 1, 50 if end < 500 else 500):
        lines.append(f'<line x1="{x(ms)}" y1="{TOP - 6}" x2="{x(ms)}" y2="{bottom}" class="grid"/>')
        lines.append(f'<text x="{x(ms)}" y="{bottom + 16}" class="small">{ms} ms</text>')
    for index, worker in enumerate(workers):
        y = TOP + ROW * index
        name = "newcomer" if worker is workers[-1] else f"worker {index}"
        lines.append(f'<text x="10" y="{y + 12}">{name}</text>')
        for kind, left, right in bars(worker, begin):
            width = max((right - left) * scale - 0.5, 0.8)
            lines.append(
                f'<rect x="{x(left)}" y="{y}" width="{width:.1f}" height="{BAR}" class="{kind}"/>'
            )
    for index, (ms, text) in enumerate(moments(workers)):
        y = 40 + 12 * (index % 3)
        side, gap = ("end", -3) if ms > (begin + end) * 0.8 else ("start", 3)
        label = f'<text x="{float(x(ms)) + gap:.1f}" y="{y}" text-anchor="{side}" class="event">'
        lines.append(f'<line x1="{x(ms)}" y1="{y - 8}" x2="{x(ms)}" y2="{bottom}" class="mark"/>')
        lines.append(f"{label}{text}, {ms:.0f} ms</text>")
    return "\n".join([*lines, "</svg>", ""])


def main():
    if sys.argv[1:] == ["--record"]:
        record()
    save(TARGET, draw(json.loads(SOURCE.read_text(encoding="utf-8"))), "docs/failure.json says")


if __name__ == "__main__":
    main()
