# SPDX-License-Identifier: Apache-2.0
"""Ranks of different frameworks in one job: they meet under the same names."""

import sys
from pathlib import Path

import pytest
from launching import TENSORFLOW, job, run

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
ORDER = ["torch", "tensorflow", "jax", "mxnet", "numpy"]


@pytest.fixture
def together(frameworks):
    found = [name for name in ORDER if name in frameworks]
    if len(found) < 2:
        pytest.skip("there is no framework but NumPy")
    return {name: frameworks[name] for name in found}


def test_all_collectives(together, run_mixed):
    result = run_mixed(together.values(), HERE / "ranks_meet.py", *together)
    assert result.returncode == 0, result.stdout[-8000:]
    for name in together:
        assert f"{name} has met the others" in result.stdout


def test_example(together):
    import horovod

    options = [f"--rank={name}={python}" for name, python in together.items()]
    example = ROOT / "examples" / "mixed" / "train.py"
    env = {**TENSORFLOW, "PYTHONPATH": str(Path(horovod.__file__).parent.parent)}
    result = run(job(len(together), sys.executable, example, *options), env, 600)
    assert result.returncode == 0, result.stdout[-8000:]
    assert f"the same bits on {', '.join(together)}" in result.stdout


def test_a_rank_without_framework():
    example = ROOT / "examples" / "mixed" / "train.py"
    result = run(job(2, sys.executable, example, "--rank=numpy"), None, 300)
    assert result.returncode != 0
    assert "rank 1 has no --rank" in result.stdout
