#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draw docs/scaling.svg from the tables of docs/benchmarks.md.

    tools/draw_scaling.py            write the file
    tools/draw_scaling.py --check    fail if the file is not what the tables say

Left: the share of its time that a step keeps for computing, measured. Right: messages of a step
that is negotiated, counted in the simulator.
"""

import math
import re

from draw_steps import BARS, ROOT, STYLE, read_table, save

TARGET = ROOT / "docs" / "scaling.svg"
LINES = """
.axis { stroke: #9aa4af } .first { fill: #1a7f37 }
polyline.horovod { fill: none; stroke: #0969da } polyline.ddp { fill: none; stroke: #d4762c }
polyline.alone { fill: none; stroke: #9aa4af } polyline.first { fill: none; stroke: #1a7f37 }
polyline { stroke-width: 2 } polyline.alone { stroke-dasharray: 4 3 }
@media (prefers-color-scheme: dark) {
  .first { fill: #3fb950 } polyline.horovod { stroke: #4493f8 } polyline.first { stroke: #3fb950 }
}
"""
HEIGHT, TOP = 150, 60


def number(text):
    return float(re.match(r"[\d.]+", text)[0])


def shares(text):
    """{model: {class: {ranks: per cent of the bound}}} from the table of steps."""
    found = {}
    for name, row in read_table(text.split("## PyTorch", 1)[1], "step"):
        model, ranks = re.fullmatch(r"(.*), (\d+) ranks", name).groups()
        for kind in ("horovod", "ddp"):
            share = 100 * number(row["alone"]) / number(row[BARS[kind][0]])
            found.setdefault(model, {}).setdefault(kind, {1: 100})[int(ranks)] = share
    return found


def messages(text):
    """{column: {ranks: messages}} from the simulator's table."""
    found = {}
    for name, row in read_table(text.split("## Scaling", 1)[1], "ranks"):
        for column, cell in row.items():
            found.setdefault(column, {})[int(name)] = number(cell)
    return found


def panel(x, width, title, unit, lines, most):
    """One diagram: {class: {ranks: value}} over the logarithm of the number of ranks."""
    last = max(ranks for points in lines.values() for ranks in points)
    first = min(ranks for points in lines.values() for ranks in points)

    def place(ranks, value):
        across = math.log(ranks / first) / math.log(last / first)
        return x + across * width, TOP + HEIGHT * (1 - value / most)

    yield f'<text x="{x}" y="{TOP - 12}">{title}</text>'
    for value in (0, most / 2, most):
        y = place(first, value)[1]
        yield f'<path d="M{x} {y:.0f}h{width}" class="axis"/>'
        yield (
            f'<text x="{x - 6}" y="{y + 4:.0f}" class="small" text-anchor="end">'
            f"{value:g}{unit}</text>"
        )
    ticks = sorted({ranks for points in lines.values() for ranks in points})
    for ranks in ticks:
        left = place(ranks, 0)[0]
        yield (
            f'<text x="{left:.0f}" y="{TOP + HEIGHT + 16}" class="small" text-anchor="middle">'
            f"{ranks}</text>"
        )
    for kind, points in lines.items():
        where = " ".join("{:.1f},{:.1f}".format(*place(*point)) for point in points.items())
        yield f'<polyline points="{where}" class="{kind}"/>'


def legend(x, y, entries):
    for kind, label in entries:
        yield f'<rect x="{x}" y="{y - 10}" width="11" height="11" class="{kind}"/>'
        yield f'<text x="{x + 16}" y="{y}" class="small">{label}</text>'
        x += 30 + 6 * len(label)


def draw(text):
    foot = TOP + HEIGHT + 40
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 900 {foot + 36}" role="img">',
        "<title>Scaling</title>",
        f"<style>{STYLE}{LINES}</style>",
        '<text x="40" y="20" class="title">Measured: share of the bound, ranks on 2 cores</text>',
        '<text x="610" y="20" class="title">Simulated: messages per step</text>',
    ]
    for i, (model, points) in enumerate(shares(text).items()):
        lines += panel(50 + 180 * i, 125, model.split(" in ")[0], " %", points, 100)
    named = [(kind, BARS[kind][1]) for kind in ("horovod", "ddp")]
    lines += legend(50, foot, named)
    counts = messages(text)
    kinds = dict(zip(counts, ("horovod", "alone", "first"), strict=True))
    simulated = {kinds[column]: points for column, points in counts.items()}
    most = 10 * math.ceil(max(max(points.values()) for points in simulated.values()) / 10)
    lines += panel(620, 250, "200 tensors, one rank per machine", "", simulated, most)
    for i, (column, kind) in enumerate(kinds.items()):
        lines += legend(620, foot + 16 * i - 8, [(kind, column)])
    return "\n".join([*lines, "</svg>", ""])


def main():
    text = (ROOT / "docs/benchmarks.md").read_text(encoding="utf-8")
    save(TARGET, draw(text), "docs/benchmarks.md says")


if __name__ == "__main__":
    main()
