# SPDX-License-Identifier: Apache-2.0
"""Ray Train with Horovod: two workers fit a line, report the loss and write checkpoints.

Worker 1 dies once on the way. Ray Train starts both again, and they go on from the last checkpoint.

python train_numpy.py
"""

import json
import os
import tempfile
from pathlib import Path

from horovod.ray.train import HorovodTrainer
from ray import train


def read(checkpoint):
    if checkpoint is None:
        return {"step": 0, "weights": [0.0, 0.0]}
    with checkpoint.as_directory() as folder:
        return json.loads(Path(folder, "state.json").read_text())


def fit_line(config):
    import horovod.numpy as hvd
    import numpy as np

    hvd.init()
    x = np.random.default_rng(hvd.rank()).uniform(-1, 1, 1000)
    y = 3 * x + 1
    state = read(train.get_checkpoint())
    first, weights = state["step"], np.array(state["weights"])
    for step in range(first, config["steps"]):
        error = weights[0] * x + weights[1] - y
        gradient = np.array([np.mean(error * x), np.mean(error)])
        weights -= config["rate"] * hvd.allreduce(gradient, name="gradient")
        if step % 10 == 9:
            loss = float(hvd.allreduce(np.array([np.mean(error**2)]), name="loss")[0])
            with tempfile.TemporaryDirectory() as folder:
                state = {"step": step + 1, "weights": weights.tolist()}
                Path(folder, "state.json").write_text(json.dumps(state))
                checkpoint = train.Checkpoint.from_directory(folder) if hvd.rank() == 0 else None
                train.report({"step": step + 1, "loss": loss}, checkpoint)
        if step == 50 and first == 0 and hvd.rank() == 1:
            train.get_all_reported_checkpoints()  # waits until they have been written
            os._exit(1)


if __name__ == "__main__":
    trainer = HorovodTrainer(
        fit_line,
        train_loop_config={"steps": 100, "rate": 0.5},
        scaling_config=train.ScalingConfig(num_workers=2),
        run_config=train.RunConfig(
            storage_path=tempfile.mkdtemp(), failure_config=train.FailureConfig(max_failures=1)
        ),
    )
    result = trainer.fit()
    print(result.metrics)
    print(read(result.checkpoint))
