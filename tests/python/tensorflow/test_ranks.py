# SPDX-License-Identifier: Apache-2.0
"""Every module of rank tests, on two ranks and, where it matters, on three or one."""

import importlib.util

import pytest

FALLBACK = {"HOROVOD_TENSORFLOW_FALLBACK": "1"}
LEGACY = {"TF_USE_LEGACY_KERAS": "1"}


# Modules that need nothing but ranks: on so many.
PLAIN = {
    "ops": [1, 2, 3],
    "contract": [2, 3],
    "gradients": [2],
    "errors": [2],
    "concurrency": [2],
    "same_op": [2, 3],
    "v1": [2],
    "xla": [2],
    "keras": [2],
    "keras_state": [2],
    "reduced_once": [2, 3],
    "fit_once": [2],
    "keras_contract": [2],
    "process_sets": [3],
    "elastic": [2],
    "compression": [1, 2],
}


@pytest.mark.parametrize("name, ranks", [(n, ranks) for n, all in PLAIN.items() for ranks in all])
def test_plain(run_ranks, name, ranks):
    run_ranks(f"ranks_{name}.py", ranks)


@pytest.mark.parametrize("ranks", [2, 3])
def test_over_tcp(run_ranks, ranks):
    run_ranks("ranks_compression.py", ranks, {"HOROVOD_SHM_DISABLE": "1"})


@pytest.mark.parametrize("name", ["ops", "gradients", "same_op", "compression"])
def test_without_native_ops(run_ranks, name):
    run_ranks(f"ranks_{name}.py", 2, FALLBACK)


@pytest.mark.skipif(importlib.util.find_spec("tf_keras") is None, reason="no tf_keras")
@pytest.mark.parametrize("name", ["keras", "fit_once"])
def test_legacy_keras(run_ranks, name):
    run_ranks(f"ranks_{name}.py", 2, LEGACY)
