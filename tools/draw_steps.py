#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draw docs/steps.svg, the chart of the README, from the tables in docs/benchmarks.md.

    tools/draw_steps.py            write the file
    tools/draw_steps.py --check    fail if the file is not what the tables say

Colours follow the reader's choice of a light or dark page.
"""

import re
import sys
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "docs" / "steps.svg"
LEFT, BAR, GAP, WIDTH, TOP = 290, 11, 2, 760, 58
LONGEST = WIDTH - LEFT - 90

# The bars of a group from above: class, column of the table, and what the legend says.
BARS = {
    "horovod": ("Horovod", "Horovod"),
    "ddp": ("DDP", "DDP with gloo"),
    "original": ("0.28.1", "Horovod 0.28.1"),
    "alone": ("alone", "no communication (the bound)"),
}
OTHER_MACHINE = "Starts and 0.28.1: 2 cores of an AMD EPYC virtual machine in use, 18 November 2026"
STYLE = """
text { font: 12px system-ui, sans-serif; fill: #1f2328 }
.title { font-size: 15px; font-weight: 600 }
.small { font-size: 11px; fill: #59636e }
.alone { fill: #9aa4af } .horovod { fill: #0969da } .ddp { fill: #d4762c }
.original { fill: #8250df }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 } .small { fill: #9198a1 }
  .alone { fill: #6e7681 } .horovod { fill: #4493f8 } .ddp { fill: #db8e4b }
  .original { fill: #a371f7 }
}
"""


def read_table(text, first):
    """One (name, {column: text of the cell}) for each row of the table whose first column is so."""
    head, *lines = text[text.index(f"| {first} |") :].splitlines()
    columns = [cell.strip() for cell in head.strip("|").split("|")]
    for line in lines[1:]:
        if not line.startswith("|"):
            break
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        yield cells[0], dict(zip(columns[1:], cells[1:], strict=True))


def read_groups(text):
    """The caption's first sentence, and a group of bars for each row."""
    part = text.split("## PyTorch", 1)[1]
    caption = part.split("| step |", 1)[0].strip().splitlines()[-1].split(". ")[0]
    rows = [(name, "ms", row) for name, row in read_table(part, "step") if "2 ranks" in name]
    rows += [(name, "s", row) for name, row in read_table(part, "start")]
    return caption, [(name, *bars_of(row, unit)) for name, unit, row in rows]


def bars_of(row, unit):
    """{class: number}, {class: what is written beside the bar}.

    0.28.1 was compared with DDP on another machine: its bar is that multiple of DDP's.
    """
    found = {k: re.match(r"[\d.]+", row.get(column, "")) for k, (column, _) in BARS.items()}
    numbers = {kind: float(number[0]) for kind, number in found.items() if number}
    texts = {kind: f"{number:g} {unit}" for kind, number in numbers.items()}
    if row.get("0.28.1 / DDP"):
        ratio = float(row["0.28.1 / DDP"])
        numbers["original"], texts["original"] = ratio * numbers["ddp"], f"{ratio:g} x DDP"
    return {kind: numbers[kind] for kind in BARS if kind in numbers}, texts


def draw(caption, groups):
    lines = [
        "<title>Time of a training step and of a start</title>",
        f"<style>{STYLE}</style>",
        '<text x="10" y="22" class="title">Time of a training step and of a start, shorter is '
        "better</text>",
    ]
    x = 150
    for kind, (_, label) in BARS.items():
        lines.append(f'<rect x="{x}" y="34" width="11" height="11" class="{kind}"/>')
        lines.append(f'<text x="{x + 16}" y="44" class="small">{label}</text>')
        x += 34 + 6 * len(label)
    y = TOP
    for name, bars, texts in groups:
        middle = y + len(bars) * (BAR + GAP) / 2 + 3
        lines.append(
            f'<text x="{LEFT - 12}" y="{middle:.0f}" text-anchor="end">{escape(name)}</text>'
        )
        for kind, number in bars.items():
            length = number / max(bars.values()) * LONGEST
            lines.append(
                f'<rect x="{LEFT}" y="{y}" width="{length:.1f}" height="{BAR}" rx="2" '
                f'class="{kind}"/>'
            )
            lines.append(
                f'<text x="{LEFT + length + 6:.1f}" y="{y + 10}" class="small">{texts[kind]}</text>'
            )
            y += BAR + GAP
        y += 11
    for note in (f"{caption}; each group has its own scale", OTHER_MACHINE):
        lines.append(f'<text x="10" y="{y + 8}" class="small">{escape(note)}</text>')
        y += 15
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y + 3}" role="img">'
    return "\n".join([head, *lines, "</svg>", ""])


def save(target, picture, why):
    """Write the picture; with --check, fail if it is not what the file holds."""
    if sys.argv[1:] != ["--check"]:
        target.write_text(picture, encoding="utf-8")
    elif target.read_text(encoding="utf-8") != picture:
        sys.exit(f"docs/{target.name} is not what {why}: run tools/{Path(sys.argv[0]).name}")


def main():
    picture = draw(*read_groups((ROOT / "docs/benchmarks.md").read_text(encoding="utf-8")))
    save(TARGET, picture, "docs/benchmarks.md says")


if __name__ == "__main__":
    main()
