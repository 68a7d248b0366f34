# SPDX-License-Identifier: Apache-2.0
"""HorovodTrainer on a real Ray Train: reports, checkpoints, and workers that fail."""

import os
import sys
import tempfile
from pathlib import Path

import cloudpickle

cloudpickle.register_pickle_by_value(sys.modules[__name__])


def train(config):
    """Counts in a checkpoint of rank 0. Rank 1 dies in its first life and leaves in its second."""
    import horovod.numpy as hvd
    import numpy as np
    from ray import train

    hvd.init()
    context = train.get_context()
    assert (hvd.rank(), hvd.size()) == (context.get_world_rank(), context.get_world_size())
    assert (hvd.local_rank(), hvd.local_size()) == (context.get_local_rank(), 2)
    before = train.get_checkpoint()
    first = 0
    if before is not None:
        with before.as_directory() as folder:
            first = int(Path(folder, "steps").read_text())
    for step in range(first, config["steps"]):
        if hvd.rank() == 1 and (first, step) in ((0, 2), (2, 3)):
            train.get_all_reported_checkpoints()  # waits until Ray has them
            if step == 2:
                os._exit(3)
            return  # rank 0 would wait for ever, if it did not fail
        total = hvd.allreduce(np.array([step + 1.0]), name="steps", op=hvd.Sum)
        told = {"step": step, "first": first, "total": float(total[0])}
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "steps").write_text(str(step + 1))
            is_first = hvd.rank() == 0
            train.report(told, train.Checkpoint.from_directory(folder) if is_first else None)


def test_workers_that_fail_go_on_from_a_checkpoint(cluster, tmp_path, monkeypatch):
    monkeypatch.setenv("RAY_TRAIN_HEALTH_CHECK_INTERVAL_S", "0.1")
    from horovod.ray.train import HorovodTrainer
    from ray.train import FailureConfig, RunConfig, ScalingConfig

    trainer = HorovodTrainer(
        train,
        train_loop_config={"steps": 4},
        scaling_config=ScalingConfig(num_workers=2, placement_strategy="STRICT_PACK"),
        run_config=RunConfig(
            storage_path=str(tmp_path), failure_config=FailureConfig(max_failures=2)
        ),
    )
    result = trainer.fit()
    assert result.metrics == {"step": 3, "first": 3, "total": 8.0}
    with result.checkpoint.as_directory() as folder:
        assert Path(folder, "steps").read_text() == "4"
