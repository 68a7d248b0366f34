# SPDX-License-Identifier: Apache-2.0
"""Every family of the API on 1, 2, 3 and 4 ranks."""

import pytest

DYNAMIC = {"HOROVOD_DYNAMIC_PROCESS_SETS": "1"}


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_ops(run_ranks, ranks):
    run_ranks("ranks_ops.py", ranks)


@pytest.mark.parametrize("ranks", [2, 3])
def test_ops_over_tcp(run_ranks, ranks):
    run_ranks("ranks_ops.py", ranks, {"HOROVOD_SHM_DISABLE": "1"})


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_errors(run_ranks, ranks):
    run_ranks("ranks_errors.py", ranks)


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_optimizer(run_ranks, ranks):
    run_ranks("ranks_optimizer.py", ranks)


def test_optimizer_over_tcp(run_ranks):
    run_ranks("ranks_optimizer.py", 2, {"HOROVOD_SHM_DISABLE": "1"})


@pytest.mark.parametrize("ranks, where", [(2, "all"), (3, "some")])
def test_optimizer_with_overlap(run_ranks, ranks, where):
    run_ranks("ranks_optimizer.py", ranks, {"TEST_OVERLAP": where})


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_functions(run_ranks, ranks):
    run_ranks("ranks_functions.py", ranks)


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_process_sets(run_ranks, ranks):
    run_ranks("ranks_sets.py", ranks, DYNAMIC)


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_life(run_ranks, ranks):
    run_ranks("ranks_life.py", ranks)


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_habits_of_scripts(run_ranks, ranks):
    run_ranks("ranks_scripts.py", ranks)


def test_compile(run_ranks):
    run_ranks("ranks_compile.py", 2)


@pytest.mark.parametrize("ranks", [1, 2])
def test_elastic_state(run_ranks, ranks):
    run_ranks("ranks_elastic.py", ranks)
