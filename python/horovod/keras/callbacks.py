# SPDX-License-Identifier: Apache-2.0
"""Callbacks for stand-alone Keras."""

import keras

from horovod._keras import callbacks as _impl

(
    BroadcastGlobalVariablesCallback,
    MetricAverageCallback,
    LearningRateScheduleCallback,
    LearningRateWarmupCallback,
    _BestModelCheckpoint,
) = _impl.make(keras, __name__)


class BestModelCheckpoint(_BestModelCheckpoint):
    """A ModelCheckpoint that keeps the best model; set `.filepath` before training."""

    def __init__(self, monitor="val_loss", verbose=0, mode="auto", save_freq="epoch"):
        super().__init__(monitor=monitor, verbose=verbose, mode=mode, save_freq=save_freq)
