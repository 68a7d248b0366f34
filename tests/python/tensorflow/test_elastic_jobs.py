# SPDX-License-Identifier: Apache-2.0
"""TensorFlow trainings whose workers are lost and replaced."""

import json
from pathlib import Path

import numpy as np
import pytest
from elastic_replay import replay
from jobs import Job
from launching import TENSORFLOW

SCRIPT = Path(__file__).resolve().parent / "elastic_training.py"
THREE = ("-np", "3", "--min-np", "2", "--max-np", "3", "-H", "localhost:3")


@pytest.fixture(scope="module")
def run_job(tmp_path_factory):
    made = []

    def run(**env):
        made.append(Job(tmp_path_factory.mktemp("job"), SCRIPT, *THREE, env={**TENSORFLOW, **env}))
        made[-1].succeed()
        return json.loads((made[-1].folder / "answer").read_text(encoding="utf-8"))

    yield run
    for job in made:
        job.kill()


@pytest.fixture(scope="module")
def loop(run_job):
    """What a compiled step came to that lost a worker and got another."""
    return run_job(TEST_MODE="loop", TEST_FAULTS="kill:step:10:1", TEST_FINAL_SIZE="3")


def test_issue_1994_a_lost_peer_is_not_taken_for_success(loop):
    """The survivors repeat the step of the failed collective, and go on with two ranks."""
    assert len(loop["history"]) >= 30 and {len(step) for step in loop["history"]} == {2, 3}
    # Keras 2 rounds the samples to single precision.
    assert np.allclose(replay(loop["history"]), loop["weights"], rtol=0, atol=1e-6)


def test_issue_2652_a_newcomer_does_not_hang_in_its_first_broadcast(loop):
    """It is a rank of the last world, whose ranks have compared their weights and momenta."""
    assert loop["size"] == 3


def test_fit(run_job):
    answer = run_job(TEST_MODE="fit", TEST_FAULTS="kill:step:13:2")
    assert answer["epoch"] == 3
