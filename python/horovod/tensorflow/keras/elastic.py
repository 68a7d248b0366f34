# SPDX-License-Identifier: Apache-2.0
"""Elastic training with tf.keras."""

import tensorflow as tf

from horovod._keras import elastic as _impl
from horovod.common.elastic import leave  # noqa: F401

KerasState, run = _impl.make_state(tf.keras, __name__)
CommitStateCallback, UpdateBatchStateCallback, UpdateEpochStateCallback = _impl.make(
    tf.keras, __name__
)
