# SPDX-License-Identifier: Apache-2.0
"""Ranks that stop early or die, and exits with operations in flight: clear errors and no hang."""

import sys

import pytest
from launching import run

EARLY = """
import os, signal, sys
import mxnet as mx, horovod.mxnet as hvd
hvd.init()
net = mx.gluon.nn.Dense(1, in_units=2)
net.initialize()
trainer = hvd.DistributedTrainer(net.collect_params(), "sgd")
try:
    for step in range(10):
        if hvd.rank() == 1 and step == 3:
            {leave}
        with mx.autograd.record():
            loss = net(mx.nd.ones((1, 2))).sum()
        loss.backward()
        trainer.step(1)
        net.weight.data().wait_to_read()
except mx.base.MXNetError as error:
    print("rank", hvd.rank(), "caught:", error, flush=True)
    sys.exit(0)
print("rank", hvd.rank(), "ended", flush=True)
"""


def test_a_rank_that_ends_early(run_script):
    result = run_script(EARLY.format(leave="break"), 2)
    assert result.returncode == 0, result.stdout[-4000:]
    assert "rank 1 ended" in result.stdout
    assert "Horovod has been shut down" in result.stdout
    assert "rank 0 caught" in result.stdout


@pytest.mark.parametrize(
    "leave", ["raise KeyError('of the user')", "os.kill(os.getpid(), signal.SIGKILL)"]
)
def test_a_rank_that_fails_alone(run_script, leave):
    result = run_script(EARLY.format(leave=leave), 2)
    assert result.returncode != 0
    assert "Process name: 1\n" in result.stdout, result.stdout[-4000:]
    if "KeyError" in leave:
        assert "of the user" in result.stdout


@pytest.mark.parametrize("order", [("mxnet", "horovod.mxnet"), ("horovod.numpy", "horovod.mxnet")])
def test_exit_with_operations_in_flight(run_script, order):
    """Nobody else takes part in these; a process leaves without waiting for ever, and cleanly."""
    source = f"""
import {order[0]}
if "{order[0]}" == "horovod.numpy":
    horovod.numpy.init()  # before MXNet is there, so its own exit function runs before ours
import {order[1]} as hvd, mxnet as mx
hvd.init()
kept = [hvd.allreduce(mx.nd.ones(1000), name=f"rank {{hvd.rank()}} only {{k}}") for k in range(20)]
later = [k * 2 for k in kept]
print("left", hvd.rank(), flush=True)
"""
    result = run_script(source, 2, deadline_s=180)
    assert result.returncode == 0, result.stdout[-4000:]
    assert "left 0" in result.stdout and "left 1" in result.stdout
    assert "Exception" not in result.stdout, result.stdout[-4000:]


def alone(source):
    return run([sys.executable, "-c", source], deadline_s=180).stdout


def test_without_mxnet():
    output = alone("import sys; sys.modules['mxnet'] = None\nimport horovod.mxnet")
    assert "horovod.mxnet needs MXNet" in output and "pip install mxnet==1.9.1" in output


def test_with_a_numpy_that_is_too_new():
    output = alone("import numpy; del numpy.__deprecated_attrs__['bool']\nimport horovod.mxnet")
    assert "MXNet 1.9.1 needs NumPy below 1.24: pip install numpy==1.23.5" in output, output
