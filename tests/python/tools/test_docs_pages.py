# SPDX-License-Identifier: Apache-2.0
"""Pages say what the program says: headings of troubleshooting are texts of messages."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def source():
    """All string literals that follow each other, joined."""
    folders = ("src", "launcher", "python/horovod", "tools")
    paths = [p for f in folders for p in (ROOT / f).rglob("*") if p.suffix in (".c", ".py", ".def")]
    text = "\n".join(p.read_text(encoding="utf-8") for p in paths)
    return re.sub(r'"\s*\n?\s*(?:f|r)?"', "", text)


def messages():
    """The heading itself, or what a comment under it gives as the text in the source."""
    for part in re.split(r"^### ", PAGE, flags=re.MULTILINE)[1:]:
        heading = part.splitlines()[0]
        given = re.search(r"<!-- text: (.*) -->", part)
        yield pytest.param(given[1] if given else heading, id=heading)


@pytest.mark.parametrize("text", list(messages()))
def test_heading_is_in_the_source(source, text):
    if text == "needs PyTorch":
        assert '"PyTorch", "torch", error' in source and "needs {title}" in source
    else:
        assert text in source


@pytest.mark.parametrize("name", sorted(path.name for path in (ROOT / "tools").glob("draw_*.py")))
def test_pictures_are_drawn_by_their_scripts(name):
    command = [sys.executable, ROOT / "tools" / name, "--check"]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_every_page_is_listed():
    listed = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    for page in (ROOT / "docs").glob("*.md"):
        assert page.name == "README.md" or f"({page.name})" in listed, page.name
