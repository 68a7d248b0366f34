# SPDX-License-Identifier: Apache-2.0
"""The examples run on several ranks, and what they train gets better."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from launching import launch

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = ROOT / "examples" / "pytorch"
IMAGENET = ["--epochs", "3", "--images", "256", "--pixels", "16", "--mixed-precision"]


def run_example(ranks, name, *arguments):
    result = launch(ranks, sys.executable, EXAMPLES / name, *arguments)
    assert result.returncode == 0, result.stdout[-8000:]
    # Without warnings, which a busy machine may cause.
    return "\n".join(line for line in result.stdout.splitlines() if "<stderr>" not in line)


def numbers(pattern, text):
    return [float(number) for number in re.findall(pattern, text)]


def test_gpt():
    losses = numbers(r"loss (\d+\.\d+)", run_example(2, "pytorch_gpt.py", "--steps", "21"))
    assert len(losses) == 2 and losses[1] < losses[0]


def test_imagenet_resumes_with_the_same_bits(tmp_path):
    whole = run_example(2, "pytorch_imagenet.py", *IMAGENET)
    path = ["--checkpoint", tmp_path / "run.pt"]
    run_example(2, "pytorch_imagenet.py", *IMAGENET, *path, "--stop-after", "1")
    rest = run_example(2, "pytorch_imagenet.py", *IMAGENET, *path)
    assert "epoch 2" in rest and "epoch 1" not in rest
    losses = numbers(r"loss (\d+\.\d+)", whole)
    assert losses[2] < losses[0] / 2
    end = re.compile(r"accuracy .*")
    assert end.search(whole)[0] == end.search(rest)[0]


def test_adasum():
    output = run_example(2, "pytorch_adasum.py", "--steps", "100")
    average, adasum = numbers(r"loss (\d+\.\d+)", output)
    assert adasum < 0.1 and average < 0.1


def test_process_sets():
    output = run_example(3, "pytorch_process_sets.py")
    assert "model 1: loss" in output and "model 2: loss" in output


def test_uneven():
    output = run_example(3, "pytorch_uneven.py")
    losses = numbers(r"loss (\d+\.\d+)", output)
    assert losses[-1] < losses[0] and "all ranks have the same weights" in output
    assert output.count("the last to join was rank 2") == 3


def test_gan():
    output = run_example(2, "pytorch_gan.py", "--steps", "400")
    x, y = numbers(r"(-?\d\.\d\d)", output)[:2]
    assert abs(x - 2) < 0.7 and abs(y + 1) < 0.7


def test_actor_critic():
    first, last = numbers(r"(\d+\.\d)", run_example(2, "pytorch_actor_critic.py"))
    assert last < first and last < 8  # four steps are the shortest way


@pytest.mark.parametrize("name", ["pytorch_uneven.py", "pytorch_process_sets.py"])
def test_examples_run_alone(name):
    command = [sys.executable, EXAMPLES / name]
    subprocess.run(command, check=True, timeout=300, capture_output=True)


def test_every_folder_has_a_readme_that_names_its_files():
    for folder in (ROOT / "examples").iterdir():
        text = (folder / "README.md").read_text(encoding="utf-8")
        for path in folder.iterdir():
            if path.suffix in (".py", ".c", ".ipynb", ".sbatch"):
                assert path.name in text, f"{folder.name}/README.md does not name {path.name}"
