# SPDX-License-Identifier: Apache-2.0
"""Every module of rank tests, on two ranks and, where it matters, on three or one."""

import importlib.util

import pytest

FALLBACK = {"HOROVOD_TENSORFLOW_FALLBACK": "1"}


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_ops(run_ranks, ranks):
    run_ranks("ranks_ops.py", ranks)


def test_ops_without_native_ones(run_ranks):
    run_ranks("ranks_ops.py", 2, FALLBACK)


@pytest.mark.parametrize("ranks", [2, 3])
def test_contract(run_ranks, ranks):
    run_ranks("ranks_contract.py", ranks)


def test_gradients(run_ranks):
    run_ranks("ranks_gradients.py", 2)


def test_gradients_without_native_ops(run_ranks):
    run_ranks("ranks_gradients.py", 2, FALLBACK)


def test_errors(run_ranks):
    run_ranks("ranks_errors.py", 2)


def test_many_at_once(run_ranks):
    run_ranks("ranks_concurrency.py", 2)


def test_graphs_of_tensorflow_1(run_ranks):
    run_ranks("ranks_v1.py", 2)


def test_compiled_by_xla(run_ranks):
    run_ranks("ranks_xla.py", 2)


def test_keras(run_ranks):
    run_ranks("ranks_keras.py", 2)


def test_keras_contract(run_ranks):
    run_ranks("ranks_keras_contract.py", 2)


@pytest.mark.skipif(importlib.util.find_spec("tf_keras") is None, reason="no tf_keras")
def test_legacy_keras(run_ranks):
    run_ranks("ranks_keras.py", 2, {"TF_USE_LEGACY_KERAS": "1"})


def test_process_sets(run_ranks):
    run_ranks("ranks_process_sets.py", 3)


def test_elastic_states(run_ranks):
    run_ranks("ranks_elastic.py", 2)
