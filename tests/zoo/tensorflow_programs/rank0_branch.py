# SPDX-License-Identifier: Apache-2.0
"""Rank 0 does one collective more than the others."""

import horovod.tensorflow as hvd
import tensorflow as tf

hvd.init()
for _ in range(5):
    hvd.allreduce(tf.ones([4]), name="grad")
if hvd.rank() == 0:
    hvd.allreduce(tf.ones([1]), name="log")  # HERE
hvd.allreduce(tf.ones([4]), name="next")  # WAITS
