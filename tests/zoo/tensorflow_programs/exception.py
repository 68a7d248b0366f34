# SPDX-License-Identifier: Apache-2.0
"""Rank 1 finds a bad sample."""

import horovod.tensorflow as hvd
import tensorflow as tf


def check(step):
    if hvd.rank() == 1 and step == 3:
        raise ValueError("sample 17 has no label")  # HERE


hvd.init()
for step in range(100000):
    check(step)
    hvd.allreduce(tf.ones([4]), name="grad")  # WAITS
