# SPDX-License-Identifier: Apache-2.0
"""The man page and the completion files know every option of --help, and no other."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def options(run):
    text = run("--help").stdout
    found = set()
    for line in text.splitlines():
        match = re.match(r"  (-\S+?)(?:, (-\S+))?(?: |$)", line)
        if match:
            found.update(name for name in match.groups() if name)
    assert len(found) > 60
    return found


def test_man_page(options):
    text = (ROOT / "docs/man/horovodrun.1").read_text().replace("\\-", "-")
    section = text[text.index(".SH OPTIONS") : text.index(".SH HOSTS")]
    named = set()
    for line in re.findall(r'^\.BR "([^"]+)"', section, re.MULTILINE):
        named.update(line.split(", "))
    assert named == options


def test_man_page_is_well_formed():
    if shutil.which("groff") is None:
        pytest.skip("no groff")
    result = subprocess.run(
        ["groff", "-man", "-ww", "-z", str(ROOT / "docs/man/horovodrun.1")],
        capture_output=True,
        text=True,
    )
    assert result.stderr == ""


def test_zsh_completion(options):
    text = (ROOT / "launcher/completion/_horovodrun").read_text()
    named = set()
    for line in text.splitlines():
        match = re.match(r"    '(?:\((-\S+) (-\S+)\)|\*?(-[^\[]+))", line)
        if match:
            named.update(name for name in match.groups() if name)
    assert named == options


def complete(*words):
    script = (
        f"source {ROOT}/launcher/completion/horovodrun.bash; COMP_WORDS=({' '.join(words)}); "
        f'COMP_CWORD={len(words) - 1}; _horovodrun; printf "%s\\n" "${{COMPREPLY[@]}}"'
    )
    result = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    return set(result.stdout.split())


def test_bash_completion(options):
    assert complete("horovodrun", "-") == options
    assert complete("horovodrun", "--fus") == {"--fusion-threshold-mb"}
    assert complete("horovodrun", "-np", "2", "--log-level", "D") == {"DEBUG"}
    assert "--fusion-threshold-mb" not in complete("horovodrun", "-np", "2", "ls", "--fus")
