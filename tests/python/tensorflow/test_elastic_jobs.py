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


@pytest.fixture
def run_job(tmp_path):
    made = []

    def run(**env):
        made.append(Job(tmp_path / "job", SCRIPT, *THREE, env={**TENSORFLOW, **env}))
        made[-1].succeed()
        return json.loads((made[-1].folder / "answer").read_text(encoding="utf-8"))

    yield run
    for job in made:
        job.kill()


def test_compiled_step_and_a_newcomer(run_job):
    """Issue 1994: a lost peer is neither swallowed nor taken for success.

    Issue 2652: the newcomer does not hang in its first broadcast.
    """
    answer = run_job(TEST_MODE="loop", TEST_FAULTS="kill:step:10:1", TEST_FINAL_SIZE="3")
    history = answer["history"]
    assert answer["size"] == 3 and {len(step) for step in history} == {2, 3}
    # Keras 2 rounds the samples to single precision.
    assert np.allclose(replay(history), answer["weights"], rtol=0, atol=1e-6)


def test_fit(run_job):
    answer = run_job(TEST_MODE="fit", TEST_FAULTS="kill:step:13:2")
    assert answer["epoch"] == 3
