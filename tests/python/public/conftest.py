# SPDX-License-Identifier: Apache-2.0
"""Each test here runs for each package whose framework is installed."""

import importlib.util
import os
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parent))
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
_installed = {name: importlib.util.find_spec(name) is not None for name in ("keras", "tensorflow")}
if _installed["keras"] and not _installed["tensorflow"]:
    os.environ.setdefault("KERAS_BACKEND", "torch")

from surface import PACKAGES  # noqa: E402

NEEDS = {
    "horovod.torch": ("torch",),
    "horovod.torch.distributed": ("torch",),
    "horovod.tensorflow": ("tensorflow",),
    "horovod.tensorflow.keras": ("tensorflow",),
    "horovod.keras": ("keras",),
    "horovod.jax": ("jax",),
    "horovod.mxnet": ("mxnet",),
    "horovod.numpy": ("numpy",),
    "horovod.spark": ("pyspark", "fsspec"),
    "horovod.ray": ("ray",),
}


def _is_here(package):
    return all(importlib.util.find_spec(name) is not None for name in NEEDS.get(package, ()))


@pytest.fixture(params=[package for package in PACKAGES if _is_here(package)])
def package(request):
    return request.param
