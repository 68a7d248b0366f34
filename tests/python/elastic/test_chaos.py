# SPDX-License-Identifier: Apache-2.0
"""One short seed of tests/chaos, and a machine that is cut off."""

import sys
from pathlib import Path

import pytest
from counting_replay import replay

sys.path.append(str(Path(__file__).resolve().parents[2] / "chaos"))

import chaos  # noqa: E402


def test_a_short_seed():
    step, size, sizes = chaos.run(seed=1, events=8)
    assert step == len(sizes) > 0


@pytest.fixture
def split(tmp_path):
    """A job of four workers on two machines, whose line the test cuts."""
    with chaos.two_machines(tmp_path) as machines:
        made = chaos.Chaos(tmp_path, seed=1, events=0, machines=machines)
        yield made
        machines.cut(False)
        made.job.kill()


def test_a_machine_is_cut_off_and_healed(split):
    """The near side goes on alone; what was cut off is refused, and replaced once it can be."""

    def sizes_now():
        return [int(line[3]) for line in split.job.live().values() if line[0] == "step"]

    job = split.job
    job.wait_until(lambda: sizes_now() == [4, 4, 4, 4])
    cut_off = {pid for pid in job.live() if not split.machines.is_near(pid)}
    assert len(cut_off) == 2
    split.machines.cut()
    job.wait_until(lambda: 2 in sizes_now())
    split.machines.cut(False)
    job.wait_until(lambda: not cut_off & set(job.live()) and sizes_now() == [4, 4, 4, 4])
    (job.folder / "finish").touch()
    job.succeed()
    step, total, size, sizes = job.result()
    assert size == 4 and total == replay(sizes)
