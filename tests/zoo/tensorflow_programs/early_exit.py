# SPDX-License-Identifier: Apache-2.0
"""Rank 1 stops early, by itself, with exit code 0."""

import sys

import horovod.tensorflow as hvd
import tensorflow as tf

hvd.init()
for step in range(100000):
    if hvd.rank() == 1 and step == 20:
        sys.exit(0)
    hvd.allreduce(tf.ones([4]), name="grad")  # WAITS
