# SPDX-License-Identifier: Apache-2.0
"""The storage of rank 1 does not answer: it reads from a pipe into which nobody writes."""

import os

import horovod.tensorflow as hvd
import tensorflow as tf


def load(step):
    if hvd.rank() == 1 and step == 3:
        os.read(os.pipe()[0], 1)  # HERE
    return tf.ones([4])


hvd.init()
for step in range(10):
    hvd.allreduce(load(step), name="grad")  # WAITS
