# SPDX-License-Identifier: Apache-2.0
"""Ranks as Ray actors: each adds its rank to a sum, and rank 0 reports the steps.

python run_numpy.py
"""

import ray
from horovod.ray import RayExecutor, ray_logger


def work(steps):
    import horovod.numpy as hvd
    import numpy as np

    hvd.init()
    for step in range(steps):
        total = hvd.allreduce(np.array([float(hvd.rank() + step)]), op=hvd.Sum)
        ray_logger.log({"step": step, "sum": float(total[0])})
    return hvd.rank(), float(total[0])


if __name__ == "__main__":
    ray.init()
    executor = RayExecutor(RayExecutor.create_settings(timeout_s=30), num_workers=2)
    executor.start()
    print(executor.run(work, args=[3], callbacks=[print]))
    executor.shutdown()
