# SPDX-License-Identifier: Apache-2.0
"""Keras' fit() on PyTorch and on JAX, with a worker that is killed."""

import json
from pathlib import Path

import pytest
from jobs import Job

SCRIPT = Path(__file__).resolve().parent / "elastic_training.py"
THREE = ("-np", "3", "--min-np", "2", "--max-np", "3", "-H", "localhost:3")


@pytest.mark.parametrize("backend, final_size", [("torch", 3), ("jax", 0)])
def test_issue_2844_fit_goes_on_in_the_right_epoch(tmp_path, backend, final_size):
    """Also on the workers that have come."""
    env = {"KERAS_BACKEND": backend, "TEST_FAULTS": "kill:step:13:2"}
    env["TEST_FINAL_SIZE"] = str(final_size)
    job = Job(tmp_path / "job", SCRIPT, *THREE, env=env)
    try:
        job.succeed()
    finally:
        job.kill()
    answer = json.loads((job.folder / "answer").read_text(encoding="utf-8"))
    assert answer["epoch"] >= 3 and answer["size"] >= final_size
    assert answer["epochs"] == list(range(1, answer["epoch"] + 1))
