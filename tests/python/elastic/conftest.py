# SPDX-License-Identifier: Apache-2.0
"""Elastic jobs of real processes, started by the real launcher."""

import sys
from pathlib import Path

import pytest
from jobs import Job

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE))


@pytest.fixture
def start(tmp_path):
    """start(script, options..., env=...): a Job that does not outlive the test."""
    made = []

    def run(script, *options, env=None, name="job"):
        made.append(Job(tmp_path / name, HERE / script, *options, env=env))
        return made[-1]

    yield run
    for job in made:
        job.kill()
