# SPDX-License-Identifier: Apache-2.0
"""horovod.numpy on one, two and three ranks, and what it says where it can't work."""

import sys

import pytest
from launching import run

DYNAMIC = {"HOROVOD_DYNAMIC_PROCESS_SETS": "1"}


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_ops(run_ranks, ranks):
    run_ranks("ranks_ops.py", ranks, DYNAMIC)


def test_ops_over_tcp(run_ranks):
    run_ranks("ranks_ops.py", 2, {**DYNAMIC, "HOROVOD_SHM_DISABLE": "1"})


@pytest.mark.parametrize("ranks", [2, 3])
def test_errors(run_ranks, ranks):
    run_ranks("ranks_errors.py", ranks)


def test_exit_with_operations_in_flight(run_script):
    source = """
import numpy as np, horovod.numpy as hvd
hvd.init()
handles = [hvd.allreduce_async(np.ones(1000), f"rank {hvd.rank()} only {k}") for k in range(20)]
hvd.barrier()
print("left", hvd.rank(), flush=True)
"""
    result = run_script(source, 2, deadline_s=120)
    assert result.returncode == 0, result.stdout[-4000:]
    assert "left 0" in result.stdout and "left 1" in result.stdout


def test_a_rank_that_fails_alone(run_script):
    source = """
import numpy as np, horovod.numpy as hvd
hvd.init()
for step in range(100):
    if hvd.rank() == 1 and step == 3:
        raise KeyError("of the user")
    hvd.allreduce(np.ones(3), "x")
"""
    result = run_script(source, 3)
    assert result.returncode == 1
    assert "of the user" in result.stdout and "Process name: 1\n" in result.stdout


def test_without_numpy():
    source = "import sys; sys.modules['numpy'] = None\nimport horovod.numpy"
    result = run([sys.executable, "-c", source], deadline_s=120)
    assert result.returncode == 1
    assert "horovod.numpy needs NumPy" in result.stdout and "pip install numpy" in result.stdout


def test_oneccl_is_not_there(run_script):
    source = """
import os
os.environ["HOROVOD_CPU_OPERATIONS"] = "ccl"  # here, because horovodrun replaces it
import horovod.numpy as hvd
hvd.init()
print(hvd.allreduce(2.0))
"""
    result = run_script(source, 2)
    assert result.returncode == 0, result.stdout[-4000:]
    told = "HOROVOD_CPU_OPERATIONS=ccl has no effect: there is no backend for oneCCL."
    assert result.stdout.count(told) == 1
