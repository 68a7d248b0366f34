# SPDX-License-Identifier: Apache-2.0
"""Callbacks for tf.keras."""

import tensorflow as tf

from horovod._keras import callbacks as _impl

(
    BroadcastGlobalVariablesCallback,
    MetricAverageCallback,
    LearningRateScheduleCallback,
    LearningRateWarmupCallback,
    BestModelCheckpoint,
) = _impl.make(tf.keras, __name__)
