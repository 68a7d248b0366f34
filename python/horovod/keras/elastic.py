# SPDX-License-Identifier: Apache-2.0
"""Elastic training with stand-alone Keras."""

import keras

from horovod._keras import elastic as _impl
from horovod.common.elastic import leave  # noqa: F401

KerasState, run = _impl.make_state(keras, __name__)
CommitStateCallback, UpdateBatchStateCallback, UpdateEpochStateCallback = _impl.make(
    keras, __name__
)
