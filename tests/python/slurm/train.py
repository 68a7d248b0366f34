# SPDX-License-Identifier: Apache-2.0
"""A training that every way of starting must bring to the same weights, bit for bit.

Linear regression with NumPy: each rank has its own data, gradients are averaged, and the first
weights are rank 0's. Prints one line per rank: <rank size local_rank local_size cross_rank
cross_size WEIGHTS>, the weights as the hex digits of their hash.

TRAIN_DIE=R: rank R kills itself after a few steps. TRAIN_STEPS: how many. TRAIN_LIVES: how often
all of it is done, from init to shutdown.
"""

import hashlib
import os
import signal
import sys

import numpy as np
from horovod.common.library import native

STEPS = int(os.environ.get("TRAIN_STEPS", "20"))
DIE = int(os.environ.get("TRAIN_DIE", "-1"))
LIVES = int(os.environ.get("TRAIN_LIVES", "1"))


def run(kind, name, array, reduce=None):
    handle = native.submit(
        *(kind, name, 0, native.SUM if reduce is None else reduce, 1.0, 1.0, 0),
        *(array, array, None, native.OP_WAITED),
    )
    native.finish(handle)


def main():
    native.init(None, [])
    rank, size = native.rank(), native.size()
    random = np.random.default_rng(rank)
    data = random.standard_normal((64, 257)).astype(np.float32)
    wanted = random.standard_normal(64).astype(np.float32)
    weights = random.standard_normal(257).astype(np.float32)
    run(native.BROADCAST, "weights", weights)
    for step in range(STEPS):
        if step == 5 and rank == DIE:
            os.kill(os.getpid(), signal.SIGKILL)
        # Sums in a fixed order, so that the figures do not depend on NumPy's choice of kernels.
        error = np.add.reduce(data * weights, axis=1) - wanted
        gradient = np.add.reduce(data * error[:, None], axis=0) / np.float32(64)
        gradient = np.ascontiguousarray(gradient, dtype=np.float32)
        run(native.ALLREDUCE, "gradient", gradient, native.AVERAGE)
        weights -= np.float32(0.01) * gradient
    place = (native.local_rank(), native.local_size(), native.cross_rank(), native.cross_size())
    digest = hashlib.sha256(weights.tobytes()).hexdigest()[:16]
    native.shutdown()
    sys.stdout.write(" ".join(map(str, ("<" + str(rank), size, *place, digest + ">\n"))))
    sys.stdout.flush()


for _ in range(LIVES):
    main()
