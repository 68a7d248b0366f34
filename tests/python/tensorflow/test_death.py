# SPDX-License-Identifier: Apache-2.0
"""A rank dies: the others get an exception that names it, and do not hang."""

import sys

import pytest

SCRIPT = """
import os, signal, sys
import tensorflow as tf
import horovod.tensorflow as hvd
hvd.init()
ways = {
    "eager": lambda: hvd.allreduce(tf.ones(3)),
    "graph": tf.function(lambda: [hvd.allreduce(tf.ones(3), name=f"n{i}") for i in range(50)]),
    "compiled": tf.function(lambda: hvd.allreduce(tf.ones(3)), jit_compile=True),
}
run = ways[sys.argv[1]]
run()
if hvd.rank() == 1:
    os.kill(os.getpid(), signal.SIGKILL)
try:
    run()
except (tf.errors.UnknownError, tf.errors.InternalError) as error:
    assert "Horovod: rank 1" in error.message, error.message
    print("told of the death")
"""


@pytest.mark.parametrize("way", ["eager", "graph", "compiled"])
def test_death(tmp_path, launch_ranks, way):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT, encoding="utf-8")
    result = launch_ranks(2, sys.executable, script, way, deadline_s=120)
    assert result.returncode != 0
    assert "told of the death" in result.stdout, result.stdout[-4000:]
