# SPDX-License-Identifier: Apache-2.0
"""What the files of ranks share: comparisons between ranks, and the learning rate."""

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf
from horovod.tensorflow.util import tf_variable


def assert_equal_on_all_ranks(variables):
    for variable in variables:
        value = tf.reshape(tf.convert_to_tensor(tf_variable(variable)), [1, -1])
        gathered = hvd.allgather(value).numpy()
        assert (gathered == gathered[0]).all(), variable


def rate_of(model):
    """The learning rate that the model's optimizer has now."""
    return float(np.asarray(tf_variable(model.optimizer.learning_rate)))
