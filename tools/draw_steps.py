#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draw docs/steps.svg, the chart of the README, from the table of step times in docs/benchmarks.md.

    tools/draw_steps.py            write the file
    tools/draw_steps.py --check    fail if the file is not what the table says

Colours follow the reader's choice of a light or dark page.
"""

import re
import sys
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "docs" / "steps.svg"
LEFT, BAR, GAP, ROW, WIDTH, TOP = 290, 11, 2, 50, 760, 58
LONGEST = WIDTH - LEFT - 90

STYLE = """
text { font: 12px system-ui, sans-serif; fill: #1f2328 }
.title { font-size: 15px; font-weight: 600 }
.small { font-size: 11px; fill: #59636e }
.alone { fill: #9aa4af } .horovod { fill: #0969da } .ddp { fill: #d4762c }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 } .small { fill: #9198a1 }
  .alone { fill: #6e7681 } .horovod { fill: #4493f8 } .ddp { fill: #db8e4b }
}
"""


def read_table(text):
    """The caption's first sentence, and one (name, alone, horovod, ddp) for each row."""
    part = text.split("## PyTorch", 1)[1]
    caption, table = part.split("| step |", 1)
    caption = caption.strip().splitlines()[-1].split(". ")[0]
    rows = []
    for line in table.splitlines()[2:]:
        if not line.startswith("|"):
            break
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        rows.append((cells[0], *(float(re.match(r"[\d.]+", c)[0]) for c in cells[1:4])))
    return caption, rows


def draw(caption, rows):
    height = TOP + ROW * len(rows) + 26
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
        "<title>Milliseconds per training step</title>",
        f"<style>{STYLE}</style>",
        '<text x="10" y="22" class="title">Milliseconds per training step, shorter is better'
        "</text>",
    ]
    x = LEFT - 80
    for kind, label in (
        ("horovod", "Horovod"),
        ("ddp", "DDP with gloo, best bucket size"),
        ("alone", "no communication (the bound)"),
    ):
        lines.append(f'<rect x="{x}" y="34" width="11" height="11" class="{kind}"/>')
        lines.append(f'<text x="{x + 16}" y="44" class="small">{label}</text>')
        x += 34 + 6 * len(label)
    for i, (name, alone, ours, ddp) in enumerate(rows):
        top, most = TOP + ROW * i, max(alone, ours, ddp)
        lines.append(
            f'<text x="{LEFT - 12}" y="{top + 24}" text-anchor="end">{escape(name)}</text>'
        )
        for j, (kind, ms) in enumerate((("horovod", ours), ("ddp", ddp), ("alone", alone))):
            y, length = top + j * (BAR + GAP), ms / most * LONGEST
            lines.append(
                f'<rect x="{LEFT}" y="{y}" width="{length:.1f}" height="{BAR}" rx="2" '
                f'class="{kind}"/>'
            )
            lines.append(
                f'<text x="{LEFT + length + 6:.1f}" y="{y + 10}" class="small">{ms}</text>'
            )
    note = f"{caption}; each group has its own scale"
    lines.append(f'<text x="{LEFT}" y="{height - 10}" class="small">{escape(note)}</text>')
    return "\n".join([*lines, "</svg>", ""])


def save(target, picture, why):
    """Write the picture; with --check, fail if it is not what the file holds."""
    if sys.argv[1:] != ["--check"]:
        target.write_text(picture, encoding="utf-8")
    elif target.read_text(encoding="utf-8") != picture:
        sys.exit(f"docs/{target.name} is not what {why}: run tools/{Path(sys.argv[0]).name}")


def main():
    picture = draw(*read_table((ROOT / "docs/benchmarks.md").read_text(encoding="utf-8")))
    save(TARGET, picture, "docs/benchmarks.md says")


if __name__ == "__main__":
    main()
