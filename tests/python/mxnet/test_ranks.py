# SPDX-License-Identifier: Apache-2.0
"""Every module of rank tests, on one, two or three ranks."""

import pytest

DYNAMIC = {"HOROVOD_DYNAMIC_PROCESS_SETS": "1"}


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_ops(run_ranks, ranks):
    run_ranks("ranks_ops.py", ranks)


def test_ops_over_tcp(run_ranks):
    run_ranks("ranks_ops.py", 2, {"HOROVOD_SHM_DISABLE": "1"})


@pytest.mark.parametrize("ranks", [2, 3])
def test_engine(run_ranks, ranks):
    run_ranks("ranks_engine.py", ranks)


def test_priorities(run_ranks):
    one_worker = {"MXNET_CPU_PRIORITY_NTHREADS": "1", "HOROVOD_TIMELINE": "DYNAMIC"}
    run_ranks("ranks_priority.py", 2, one_worker)


def test_errors(run_ranks):
    run_ranks("ranks_errors.py", 2)


def test_process_sets(run_ranks):
    run_ranks("ranks_sets.py", 3, DYNAMIC)


@pytest.mark.parametrize("ranks", [1, 2])
def test_training(run_ranks, ranks):
    run_ranks("ranks_training.py", ranks)
