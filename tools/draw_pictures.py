#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draw the diagrams of docs/concepts.md: docs/ring_and_tree.svg and docs/gradient.svg.

tools/draw_pictures.py            write them
tools/draw_pictures.py --check    fail if the files are not what this script draws
"""

import math
from pathlib import Path

from draw_steps import save

DOCS = Path(__file__).resolve().parent.parent / "docs"
STYLE = """<style>
text { font: 13px system-ui, sans-serif; fill: #1f2328; text-anchor: middle }
.small { font-size: 11px; fill: #59636e } .title { font-weight: 600 }
.node { fill: #ddf4ff; stroke: #0969da } .box { fill: #f6f8fa; stroke: #59636e }
.line { stroke: #59636e; fill: none; marker-end: url(#tip) }
.plan { stroke: #0969da; fill: none; stroke-dasharray: 4 3; marker-end: url(#tip) }
.tip { fill: #59636e }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 } .small { fill: #9198a1 } .node { fill: #121d2f; stroke: #4493f8 }
  .box { fill: #21262d; stroke: #9198a1 } .line { stroke: #9198a1 } .tip { fill: #9198a1 }
}
</style>
<defs><marker id="tip" markerWidth="8" markerHeight="8" refX="7" refY="3" orient="auto">
<path d="M0,0 L7,3 L0,6 z" class="tip"/></marker></defs>"""


def picture(width, height, title, parts):
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">'
    return "\n".join([head, f"<title>{title}</title>", STYLE, *parts, "</svg>", ""])


def text(x, y, words, kind=""):
    return f'<text x="{x:.0f}" y="{y:.0f}" class="{kind}">{words}</text>'


def arrow(x1, y1, x2, y2, gap, kind="line"):
    length = math.hypot(x2 - x1, y2 - y1)
    dx, dy = (x2 - x1) / length * gap, (y2 - y1) / length * gap
    points = f'x1="{x1 + dx:.0f}" y1="{y1 + dy:.0f}" x2="{x2 - dx:.0f}" y2="{y2 - dy:.0f}"'
    return f'<line {points} class="{kind}"/>'


def node(x, y, words):
    return [f'<circle cx="{x:.0f}" cy="{y:.0f}" r="17" class="node"/>', text(x, y + 5, words)]


def draw_ring(parts):
    places = [
        (170 + 85 * math.sin(i * math.pi / 3), 150 - 85 * math.cos(i * math.pi / 3))
        for i in range(6)
    ]
    for i, place in enumerate(places):
        parts.append(arrow(*place, *places[(i + 1) % 6], 19))
        parts.extend(node(*place, str(i)))
    parts.append(text(170, 20, "ring: large tensors", "title"))
    parts.append(text(170, 275, "2(n-1) rounds; each rank sends 2(n-1)/n of the tensor", "small"))


def draw_tree(parts):
    places = {
        0: (540, 70),
        1: (460, 140),
        2: (620, 140),
        3: (420, 210),
        4: (500, 210),
        5: (620, 210),
    }
    for child, parent in ((1, 0), (2, 0), (3, 1), (4, 1), (5, 2)):
        parts.append(arrow(*places[child], *places[parent], 19))
    for i, place in places.items():
        parts.extend(node(*place, str(i)))
    parts.append(text(540, 20, "tree: small tensors", "title"))
    parts.append(text(540, 255, "sums go up, the result comes down again", "small"))
    parts.append(text(540, 275, "about 2 log n rounds", "small"))


def ring_and_tree():
    parts = []
    draw_ring(parts)
    draw_tree(parts)
    return picture(720, 290, "An allreduce as a ring and as a tree", parts)


def gradient():
    steps = ["backward", "submit", "agree", "fuse", "reduce", "step()"]
    below = [
        "autograd is done",
        "by name",
        "all ranks have it",
        "one batch",
        "ring, tree, memory",
        "all are there",
    ]
    parts = []
    for i, (step, note) in enumerate(zip(steps, below, strict=True)):
        x = 15 + i * 130
        parts.append(f'<rect x="{x}" y="60" width="100" height="40" rx="6" class="box"/>')
        parts.append(text(x + 50, 85, step))
        parts.append(text(x + 50, 120, note, "small"))
        if i:
            parts.append(arrow(x - 30, 80, x, 80, 2))
    parts.append('<path d="M195,58 C 260,5 480,5 580,57" class="plan"/>')
    parts.append(text(390, 14, "after some equal steps: by the plan, without a message", "small"))
    return picture(790, 135, "The way of one gradient", parts)


def main():
    for name, drawn in (("ring_and_tree.svg", ring_and_tree()), ("gradient.svg", gradient())):
        save(DOCS / name, drawn, "tools/draw_pictures.py draws")


if __name__ == "__main__":
    main()
