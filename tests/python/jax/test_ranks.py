# SPDX-License-Identifier: Apache-2.0
"""Every module of rank tests, on two ranks and, where it matters, on three or one.

With JAX before 0.10 a selection runs: what may differ between versions is how programs are made and
called, not the values.
"""

import importlib.util

import jax
import pytest

VERSION = tuple(int(part) for part in jax.__version__.split(".")[:2])
IS_OLD = VERSION < (0, 10)
SHORT = {"HVD_TEST_SHORT": "1"} if IS_OLD else {}
BLOCKING = {"HOROVOD_JAX_BLOCKING": "1"}
current_only = pytest.mark.skipif(IS_OLD, reason="runs with the current JAX")


@pytest.mark.parametrize("ranks", [2] if IS_OLD else [1, 2, 3])
def test_ops(run_ranks, ranks):
    run_ranks("ranks_ops.py", ranks, SHORT)


@current_only
def test_ops_one_after_the_other(run_ranks):
    run_ranks("ranks_ops.py", 2, {**BLOCKING, "HVD_TEST_SHORT": "1"})


def test_transforms(run_ranks):
    run_ranks("ranks_transforms.py", 2)


@current_only
def test_transforms_on_three_ranks(run_ranks):
    run_ranks("ranks_transforms.py", 3)


def test_errors(run_ranks):
    run_ranks("ranks_errors.py", 2)


@pytest.mark.parametrize("pinned", ["", "0"])
def test_order(run_ranks, pinned):
    run_ranks("ranks_order.py", 2, {"HVD_TEST_PINNED": pinned})


@current_only
def test_order_one_after_the_other(run_ranks):
    run_ranks("ranks_order.py", 2, {**BLOCKING, "HVD_TEST_PINNED": "1"})


def test_training(run_ranks):
    run_ranks("ranks_training.py", 2)


@current_only
def test_process_sets(run_ranks):
    run_ranks("ranks_process_sets.py", 3)


@pytest.mark.skipif(importlib.util.find_spec("flax") is None, reason="no Flax")
def test_flax(run_ranks):
    run_ranks("ranks_flax.py", 2)


@current_only
def test_elastic_state(run_ranks):
    run_ranks("ranks_elastic.py", 2)


def test_several_devices(run_ranks):
    run_ranks("ranks_devices.py", 2)


@pytest.mark.parametrize("env", [{}, {"HOROVOD_SHM_DISABLE": "1"}])
def test_compression(run_ranks, env):
    run_ranks("ranks_compression.py", 2, env)
