# SPDX-License-Identifier: Apache-2.0
"""Every module of rank tests, on one, two or three ranks."""

import pytest

DYNAMIC = {"HOROVOD_DYNAMIC_PROCESS_SETS": "1"}
ONE_WORKER = {"MXNET_CPU_PRIORITY_NTHREADS": "1", "HOROVOD_TIMELINE": "DYNAMIC"}
OVER_TCP = {"HOROVOD_SHM_DISABLE": "1"}
RUNS = [
    ("ops", 1, {}),
    ("ops", 2, {}),
    ("ops", 3, {}),
    ("ops", 2, OVER_TCP),
    ("engine", 2, {}),
    ("engine", 3, {}),
    ("priority", 2, ONE_WORKER),
    ("errors", 2, {}),
    ("sets", 3, DYNAMIC),
    ("training", 1, {}),
    ("training", 2, {}),
]


@pytest.mark.parametrize("module, ranks, env", RUNS)
def test_ranks(run_ranks, module, ranks, env):
    run_ranks(f"ranks_{module}.py", ranks, env)
