# SPDX-License-Identifier: Apache-2.0
"""The examples run on several ranks, and what they train gets better."""

import re

import launching
import pytest
from example_jobs import EXAMPLES, in_turn, run_elastic, run_examples

IMAGENET = ["--epochs", "3", "--images", "256", "--pixels", "16", "--mixed-precision"]
SHORT = ["--num-warmup-batches", "1", "--num-batches-per-iter", "1", "--num-iters", "1"]
ON_TWO_RANKS = (
    ["pytorch/pytorch_gpt.py", "--steps", "21"],
    ["pytorch/pytorch_adasum.py", "--steps", "100"],
    ["pytorch/pytorch_gan.py", "--steps", "400"],
    ["pytorch/pytorch_actor_critic.py"],
    ["numpy/average.py"],
    ["pytorch/pytorch_synthetic_benchmark.py", "--image-size", "32", *SHORT],
    ["pytorch/pytorch_ddp.py"],
)


@pytest.fixture(scope="module")
def outputs():
    """{name: what it printed} of the examples that share a job."""
    texts = run_examples(2, *ON_TWO_RANKS)
    return {
        command[0].split("/")[1]: text for command, text in zip(ON_TWO_RANKS, texts, strict=True)
    }


def run_example(ranks, name, *arguments):
    return run_examples(ranks, [f"pytorch/{name}", *arguments])[0]


def numbers(pattern, text):
    return [float(number) for number in re.findall(pattern, text)]


def test_gpt(outputs):
    losses = numbers(r"loss (\d+\.\d+)", outputs["pytorch_gpt.py"])
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


def test_adasum(outputs):
    average, adasum = numbers(r"loss (\d+\.\d+)", outputs["pytorch_adasum.py"])
    assert adasum < 0.1 and average < 0.1


def test_process_sets_and_uneven():
    names = ["pytorch/pytorch_process_sets.py"], ["pytorch/pytorch_uneven.py"]
    sets, uneven = run_examples(3, *names)
    assert "model 1: loss" in sets and "model 2: loss" in sets
    losses = numbers(r"loss (\d+\.\d+)", uneven)
    assert losses[-1] < losses[0] and "all ranks have the same weights" in uneven
    assert uneven.count("the last to join was rank 2") == 3
    run = launching.run(in_turn(*names))
    assert run.returncode == 0, f"alone, without a launcher:\n{run.stdout[-8000:]}"


def test_gan(outputs):
    x, y = numbers(r"(-?\d\.\d\d)", outputs["pytorch_gan.py"])[:2]
    assert abs(x - 2) < 0.7 and abs(y + 1) < 0.7


def test_actor_critic(outputs):
    first, last = numbers(r"(\d+\.\d)", outputs["pytorch_actor_critic.py"])
    assert last < first and last < 8  # four steps are the shortest way


def test_numpy(outputs):
    text = outputs["average.py"]
    assert "rows on 2 ranks [1000, 1500]" in text and "root mean square error 0.1" in text


def test_benchmark(outputs):
    assert "total on 2 rank(s): " in outputs["pytorch_synthetic_benchmark.py"]


def test_ddp(outputs):
    losses = numbers(r"step \d+: loss (\d+\.\d+)", outputs["pytorch_ddp.py"])
    assert len(losses) == 5 and losses[-1] < losses[0]


def test_elastic():
    output = run_elastic("elastic/pytorch_elastic.py", "--epochs", "2")
    losses = numbers(r"loss (\d+\.\d+)", output)
    assert len(losses) == 2 and losses[1] < losses[0]


def test_every_folder_has_a_readme_that_names_its_files():
    for folder in EXAMPLES.iterdir():
        text = (folder / "README.md").read_text(encoding="utf-8")
        for path in folder.iterdir():
            if path.suffix in (".py", ".c", ".ipynb", ".sbatch"):
                assert path.name in text, f"{folder.name}/README.md does not name {path.name}"
