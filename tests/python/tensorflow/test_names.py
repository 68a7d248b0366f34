# SPDX-License-Identifier: Apache-2.0
"""What scripts import and how they call it: names, arguments and defaults, as in contract.txt."""

import importlib
import inspect
from pathlib import Path

import horovod.tensorflow as hvd
import pytest
from horovod.tensorflow import mpi_ops

LINES = (Path(__file__).parent / "contract.txt").read_text(encoding="utf-8").splitlines()
LINES = [line for line in LINES if not line.startswith("#")]
OPS = [line.removeprefix("op ") for line in LINES if line.startswith("op ")]
NAMES = [line for line in LINES if not line.startswith("op ")]
# TensorFlow took away what these need in 2.19.
OPTIONAL_OPS = ("HorovodBroadcastInplace", "HorovodBroadcastInplaceResource")


def default_of(parameter):
    if parameter.default is hvd.global_process_set:
        return "GPS"
    return "none" if parameter.default is hvd.Compression.none else repr(parameter.default)


def signature_of(function):
    parts = []
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is parameter.POSITIONAL_OR_KEYWORD:
            has_default = parameter.default is not parameter.empty
            parts.append(f"{name}={default_of(parameter)}" if has_default else name)
    return parts


@pytest.mark.parametrize("line", NAMES, ids=lambda line: line.split("(")[0].replace(" ", "."))
def test_name(line):
    module, name = line.split(" ", 1)
    name, has_arguments, arguments = name.partition("(")
    found = getattr(importlib.import_module(module), name)
    expected = [part for part in arguments.removesuffix(")").split(", ") if part]
    if has_arguments:
        # Further arguments may follow those that scripts know.
        assert signature_of(found)[: len(expected)] == expected


@pytest.mark.skipif(not mpi_ops._IS_NATIVE, reason="no native ops")
@pytest.mark.parametrize("line", OPS, ids=lambda line: line.split("(")[0])
def test_op_definition(line):
    from tensorflow.python.framework import op_def_registry

    name, _, attributes = line.removesuffix(")").partition("(")
    definition = op_def_registry.get(name)
    if definition is None and name in OPTIONAL_OPS:
        pytest.skip("this TensorFlow does not let others write into variables")
    expected = sorted(part for part in attributes.split(", ") if part)
    assert sorted(attr.name for attr in definition.attr) == expected
    assert callable(getattr(mpi_ops.MPI_LIB, name))
    for attr in definition.attr:
        if attr.name in ("num_tensors", "num_variables"):
            assert attr.has_minimum and attr.minimum == 1
