# SPDX-License-Identifier: Apache-2.0
"""Curves of hvd.metrics() in the files that TensorBoard reads."""

import pytest

tf = pytest.importorskip("tensorflow")
pytest.importorskip("tensorboard")  # the stack of TensorFlow 2.15 has it

CURVES = """
import numpy as np, horovod.numpy as hvd
from horovod.tensorboard import MetricsWriter
hvd.init()
writer = MetricsWriter("logs")
for step in range(3):
    for _ in range(10):
        hvd.allreduce(np.ones(100, np.float32), name="a")
    writer.write(step)
writer.close()
hvd.shutdown()
"""


def values(event):
    for value in event.summary.value:
        number = tf.make_ndarray(value.tensor) if value.HasField("tensor") else value.simple_value
        yield value.tag, event.step, float(number)


def test_curves(run_script, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run_script(CURVES, 2, env={"HOROVOD_SHM_DISABLE": "1"}, deadline_s=240)
    assert result.returncode == 0, result.stdout[-4000:]
    for rank in (0, 1):
        (path,) = (tmp_path / "logs" / f"rank.{rank}").iterdir()
        events = tf.compat.v1.train.summary_iterator(str(path))
        points = [point for event in events for point in values(event)]
        steps = [step for name, step, _ in points if name == "horovod/step_s"]
        assert steps == [0, 1, 2]
        for curve in ("step_s", "allreduce/ops_per_s", "allreduce/bytes_per_s"):
            assert all(number > 0 for name, _, number in points if name == f"horovod/{curve}")
        ops, size = (
            next(number for name, _, number in points if name == f"horovod/allreduce/{field}_per_s")
            for field in ("ops", "bytes")
        )
        assert size == pytest.approx(400 * ops, rel=1e-3)
        assert any(name == f"horovod/link_{1 - rank}/sent_bytes_per_s" for name, _, _ in points)
