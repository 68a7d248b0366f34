# SPDX-License-Identifier: Apache-2.0
"""An elastic job on Ray: one to two ranks count steps, and one of them dies on the way.

python elastic_numpy.py
"""

import os
import tempfile
from pathlib import Path

import ray
from horovod.ray import RayExecutor, ray_logger


def count(steps, folder):
    import horovod.numpy as hvd
    import numpy as np
    from horovod.common.elastic import ObjectState, make_run

    hvd.init()
    state = ObjectState(hvd.broadcast_object, hvd.rank, step=0, total=0.0)

    def reset():
        hvd.shutdown()
        hvd.init()

    @make_run(reset)()
    def train(state):
        while state.step < steps:
            state.total += float(hvd.allreduce(np.ones(1), name="one")[0])
            state.step += 1
            if state.step % 100 == 0:
                ray_logger.log({"step": state.step, "ranks": hvd.size()})
            died = Path(folder, "died")
            if state.step == 250 and hvd.rank() == 1 and not died.exists():
                died.write_text("")
                os._exit(1)
            state.commit()
        return state.step, state.total

    return train(state)


if __name__ == "__main__":
    ray.init()
    executor = RayExecutor(RayExecutor.create_settings(), min_workers=1, max_workers=2)
    executor.start()
    with tempfile.TemporaryDirectory() as folder:
        print(executor.run(count, args=[1000, folder], callbacks=[print]))
    executor.shutdown()
