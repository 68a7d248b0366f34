# SPDX-License-Identifier: Apache-2.0
"""The last batch of rank 1 is smaller, and is not reduced to a fixed size."""

import horovod.tensorflow as hvd
import tensorflow as tf

hvd.init()
rows = 3 if hvd.rank() == 1 else 4
hvd.allreduce(tf.ones([rows, 2]), name="logits")  # HERE
