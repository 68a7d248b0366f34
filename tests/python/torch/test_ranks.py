# SPDX-License-Identifier: Apache-2.0
"""Every family of the API on 1, 2, 3 and 4 ranks."""

import pytest

DYNAMIC = {"HOROVOD_DYNAMIC_PROCESS_SETS": "1"}
TCP = {"HOROVOD_SHM_DISABLE": "1"}


# Modules that need nothing but ranks: on so many.
PLAIN = {
    "ops": [1, 2, 3, 4],
    "errors": [1, 2, 3],
    "optimizer": [1, 2, 4],
    "turns": [2, 3],
    "functions": [1, 2, 3],
    "life": [1, 2, 3],
    "handles": [1, 2, 3],
    "scripts": [1, 2, 3],
    "compile": [2],
    "batch_norm": [1, 2, 3],
    "elastic": [1, 2, 4],
    "compression": [1, 2, 3],
}


@pytest.mark.parametrize("name, ranks", [(n, ranks) for n, all in PLAIN.items() for ranks in all])
def test_plain(run_ranks, name, ranks):
    run_ranks(f"ranks_{name}.py", ranks)


@pytest.mark.parametrize(
    "name, ranks",
    [
        ("ops", 2),
        ("ops", 3),
        ("optimizer", 2),
        ("turns", 2),
        ("compression", 2),
        ("compression", 4),
    ],
)
def test_over_tcp(run_ranks, name, ranks):
    run_ranks(f"ranks_{name}.py", ranks, TCP)


@pytest.mark.parametrize("name", ["optimizer", "turns"])
@pytest.mark.parametrize("ranks, where", [(2, "all"), (3, "some")])
def test_with_overlap(run_ranks, name, ranks, where):
    run_ranks(f"ranks_{name}.py", ranks, {"TEST_OVERLAP": where})


# The last one has found something: a gradient that was taken for changed, because another one was.
@pytest.mark.parametrize("ranks, seeds", [(2, "0:40"), (3, "40:30"), (1, "70:5"), (3, "12014:1")])
def test_random_training(run_ranks, ranks, seeds):
    run_ranks("ranks_random.py", ranks, {"TEST_SEEDS": seeds})


def test_random_training_over_tcp(run_ranks):
    run_ranks("ranks_random.py", 2, {"TEST_SEEDS": "75:20", **TCP})


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_process_sets(run_ranks, ranks):
    run_ranks("ranks_sets.py", ranks, DYNAMIC)
