# SPDX-License-Identifier: Apache-2.0
"""Broken programs: what horovodrun prints must name the right rank and the right line.

The programs are in torch_programs and tensorflow_programs. A line of a program is marked with HERE
if it is what a reader looks for, and with WAITS where the other ranks are. All programs of a
framework are started at the beginning, a few at a time, because most of them only wait.
"""

import importlib.util
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from launching import TENSORFLOW, launch

FOLDER = Path(__file__).resolve().parent
AT_ONCE = 4
DEADLINE_S = 120
LIMITS = {
    "HOROVOD_STALL_CHECK_TIME_SECONDS": "2",
    "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "6",
    "HOROVOD_HUNG_WARN_SECONDS": "3",
    "HOROVOD_HUNG_ERROR_SECONDS": "7",
}
RANKS = 2
PROGRAMS = [
    (kind, path)
    for kind in ("torch", "tensorflow")
    if importlib.util.find_spec(kind) is not None
    for path in sorted((FOLDER / f"{kind}_programs").glob("*.py"))
]


class Animal:
    """What became of a program."""

    def __init__(self, path, result, folder):
        self.path, self.code, self.text = path, result.returncode, result.stdout
        self.folder = folder

    def line(self, mark):
        """The place of a marked line, as "shape.py:9"."""
        lines = self.path.read_text(encoding="utf-8").splitlines()
        numbers = [n for n, line in enumerate(lines, 1) if line.endswith(f"# {mark}")]
        assert len(numbers) == 1, (self.path, mark)
        return f"{self.path.name}:{numbers[0]}"

    def traceback_line(self, mark):
        """The same as Python prints it in a traceback."""
        return f'{self.path.name}", line {self.line(mark).split(":")[1]}'

    def says(self, *parts):
        for part in parts:
            assert part in self.text, f"{part!r} is missing:\n{self.text}"

    def matches(self, pattern):
        assert re.search(pattern, self.text), f"{pattern!r} is missing:\n{self.text}"


@pytest.fixture(scope="module")
def animals(tmp_path_factory):
    root = tmp_path_factory.mktemp("zoo")

    def run(kind, path):
        folder = root / f"{kind}.{path.stem}"
        env = {**LIMITS, "HOROVOD_POSTMORTEM_DIR": str(folder)}
        env.update(TENSORFLOW if kind == "tensorflow" else {})
        command = (sys.executable, str(path))
        return Animal(path, launch(RANKS, *command, env=env, deadline_s=DEADLINE_S), folder)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield {(kind, path.stem): pool.submit(run, kind, path) for kind, path in PROGRAMS}


# ---- what each of them must say ----


def rank0_branch(animal, kind):
    here, waits = animal.line("HERE"), animal.line("WAITS")
    if kind == "torch":
        animal.says("Deadlock: every rank waits for others: ")
        animal.matches(rf"rank 0 waits for \S*log at {here}\b")
        animal.matches(rf"rank 1 waits for \S*next at {waits}\b")
    else:  # TensorFlow's threads are not known to be idle: the time limit ends it
        # Each waits for the other: the block is about the tensor that has waited longer.
        for rank, line in ((0, here), (1, waits)):
            animal.matches(
                rf"rank {rank} (submitted it and waits|on \S+ \(pid \d+\) is missing: it waits in "
                rf"Horovod) at {line}\b"
            )
        animal.matches(r"Instead it has submitted \S*(next|log), which")


def unequal_batches(animal, kind):
    here, waits = animal.line("HERE"), animal.line("WAITS")
    animal.says("Deadlock: every rank waits for others: ")
    animal.matches(rf"rank 0 waits for \S+ at {waits}\b")
    animal.matches(rf"rank 1 waits for \S*validation at {here}\b")


def shape(animal, kind):
    animal.matches(r"tensor \S*logits; .*rank 0: \[4, 2\]")
    animal.says(animal.traceback_line("HERE"), "rank 1: [3, 2]")


def dtype(animal, kind):
    animal.matches(r"tensor \S*loss; .*rank 0: float32")
    animal.says(animal.traceback_line("HERE"), "rank 1: float64")


def order(animal, kind):
    here = animal.line("HERE")
    if kind == "torch":
        animal.matches(rf"rank 0 waits for \S*accuracy at {here}\b")
        animal.matches(rf"rank 1 waits for \S*loss at {here}\b")
    else:
        animal.matches(rf"rank [01] submitted it and waits at {here}\b")
        animal.matches(r"Instead it has submitted \S*(loss|accuracy), which")


def killed(animal, kind):
    how = r"was killed by signal 9 \(SIGKILL\)"
    animal.matches(rf"horovodrun: rank 1 on \S+ {how}")
    animal.matches(rf"\[0\]<stderr>:.*Error: .*Rank 1 {how} on host \S+\.")  # what rank 0 raised
    assert animal.code == 128 + 9


def stopped(animal, kind):
    animal.matches(r"rank 1 on \S+ \(pid \d+\) is missing: it is stopped by a signal")
    animal.matches(rf"rank 0 submitted it and waits at {animal.line('WAITS')}\b")


def slow_loader(animal, kind):
    here, waits = animal.line("HERE"), animal.line("WAITS")
    animal.matches(rf"rank 0 submitted it and waits at {waits}\b")
    animal.matches(rf"rank 1 on \S+ \(pid \d+\) is missing: it is sleeping.* at {here} in load")
    animal.matches(r"It is 1 collective behind: the first that it has not submitted is \S*grad\.")


def exception(animal, kind):
    here = animal.line("HERE")
    told = f"ValueError: sample 17 has no label ({here} in check)"
    animal.matches(rf"horovodrun: rank 1 on \S+ failed with {re.escape(told)}")
    animal.matches(rf"Error: .*rank 1 .* failed with {re.escape(told)}")  # what rank 0 raised


def early_exit(animal, kind):
    animal.matches(r"horovodrun: rank 1 on \S+ exited with code 0 .*while other ranks needed it")
    animal.says(animal.traceback_line("WAITS"))


def duplicate_name(animal, kind):
    here = animal.line("HERE")
    animal.matches(rf"horovodrun: rank 1 on \S+ failed with .*same name.*\({here} in <module>\)")


def fork(animal, kind):
    animal.matches(
        rf"rank 1 on \S+ \(pid \d+\) is missing: it is sleeping.* at {animal.line('HERE')} in load"
    )
    animal.matches(rf"rank 0 submitted it and waits at {animal.line('WAITS')}\b")


@pytest.mark.parametrize(
    ("kind", "name"), [(kind, path.stem) for kind, path in PROGRAMS], ids=lambda value: value
)
def test_animal(animals, kind, name):
    animal = animals[kind, name].result()
    assert animal.code != 0, animal.text
    globals()[name](animal, kind)


@pytest.mark.skipif(("torch", "killed") not in {(k, p.stem) for k, p in PROGRAMS}, reason="torch")
def test_postmortem(animals, capsys):
    """The survivor has written what it was doing; the rank that was killed could not."""
    from horovod.runner import inspect_postmortem

    folder = animals["torch", "killed"].result().folder
    assert [path.name for path in folder.iterdir()] == ["rank.0.json"]
    assert inspect_postmortem.main([str(folder)]) == 0
    story = capsys.readouterr().out
    assert re.search(r"cause, by rank 0: rank 1 \(pid \d+ on \S+\) ", story), story
    assert "rank 1 wrote nothing" in story
    assert "allreduce.grad" in story
