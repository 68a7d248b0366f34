# SPDX-License-Identifier: Apache-2.0
"""Ranks that use the processor only. Without JAX the whole folder is left out."""

import importlib.util

import pytest

if importlib.util.find_spec("jax") is None:
    collect_ignore_glob = ["*"]


@pytest.fixture(scope="session")
def ranks_env():
    return {"JAX_PLATFORMS": "cpu"}
