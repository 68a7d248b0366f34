# SPDX-License-Identifier: Apache-2.0
"""What the README shows is what happens: the diff, the report of a failure."""

import difflib
import re
import subprocess
import sys
from pathlib import Path

import pytest
from launching import launch

ROOT = Path(__file__).resolve().parents[3]
README = (ROOT / "README.md").read_text(encoding="utf-8")
EXAMPLES = ROOT / "examples" / "pytorch"

FAILING = """\
import horovod.torch as hvd
import torch

hvd.init()
for step in range(100):
    if step == 3 and hvd.rank() == 1:
        images = torch.ones(7, 3) @ torch.ones(4, 5)
    hvd.allreduce(torch.ones(1000), name="gradient")
"""

MISMATCHED = """\
import horovod.torch as hvd, torch
hvd.init()
hvd.allreduce(torch.ones(4 if hvd.rank() == 2 else 3), name="grad.fc")
"""


def test_diff_is_that_of_the_two_files():
    names = re.search(r"<!-- diff: (\S+) (\S+) -->", README)
    old, new = [(ROOT / n).read_text(encoding="utf-8").splitlines()[2:] for n in names.groups()]
    lines = [line for line in difflib.ndiff(old, new) if not line.startswith("?")]
    wanted = "\n".join((line[0] + line[2:]).rstrip() for line in lines)
    assert re.search(r"```diff\n(.*?)\n```", README, re.DOTALL)[1] == wanted


def test_both_loops_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    command = [sys.executable, EXAMPLES / "loop_plain.py"]
    assert "epoch 2 done" in subprocess.check_output(command, text=True, timeout=300)
    (tmp_path / "checkpoint.pt").unlink()
    result = launch(2, sys.executable, EXAMPLES / "loop_distributed.py")
    assert result.returncode == 0, result.stdout
    assert result.stdout.count("epoch 2 done") == 1  # rank 0 alone
    assert (tmp_path / "checkpoint.pt").exists()


def normal(text):
    text = re.sub(r"pid \d+", "pid N", re.sub(r"after \d+\.\d+ s", "after N s", text))
    text = re.sub(r'File "[^"]*/', 'File "', text)
    return [line.rstrip() for line in text.splitlines() if "~~~" not in line]


def test_report_of_a_failure(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(FAILING, encoding="utf-8")
    result = launch(2, sys.executable, script)
    shown = re.search(r"```\n(horovodrun: rank 1.*?)```", README, re.DOTALL)[1]
    text = result.stdout[result.stdout.index("horovodrun: rank 1") :]
    assert normal(text)[: len(normal(shown))] == normal(shown)


def test_mismatch(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(MISMATCHED, encoding="utf-8")
    result = launch(4, sys.executable, script)
    shown = re.search(r"```\n(Mismatched.*?)\n```", README, re.DOTALL)[1].replace("\n", " ")
    # The rank whose request comes first is named first; which one that is varies.
    either = re.escape(shown).replace(r"rank\ 1", r"rank\ [013]")
    if not re.search(either, result.stdout):
        assert "rank 2: [4]; rank" in result.stdout, result.stdout
        assert "Ranks that do not match rank 2: 0, 1, 3." in result.stdout


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "docs/README.md"])
def test_links_lead_somewhere(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", text):
        if not target.startswith(("http:", "https:")):
            assert ((ROOT / page).parent / target).exists(), target
