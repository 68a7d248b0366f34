# SPDX-License-Identifier: Apache-2.0
"""Elastic training with tf.keras."""

import tensorflow as tf

from horovod._keras import elastic as _impl
from horovod.tensorflow.elastic import TensorFlowKerasState, run  # noqa: F401

_keras = tf.keras
_K = tf.keras.backend


class KerasState(TensorFlowKerasState):
    """The state of a model, its optimizer and further values given as keywords."""

    def __init__(self, model, optimizer=None, **kwargs):
        super().__init__(model, optimizer=optimizer, backend=_K, **kwargs)


class CommitStateCallback(_impl.CommitStateCallbackImpl, _keras.callbacks.Callback):
    """Commits the state every `batches_per_commit` batches and at the end of each epoch."""

    def __init__(self, state, batches_per_commit=1):
        super().__init__(_K, state, batches_per_commit)


class UpdateBatchStateCallback(_impl.UpdateBatchStateCallbackImpl, _keras.callbacks.Callback):
    """Keeps `state.batch`."""

    def __init__(self, state):
        super().__init__(_K, state)


class UpdateEpochStateCallback(_impl.UpdateEpochStateCallbackImpl, _keras.callbacks.Callback):
    """Keeps `state.epoch`."""

    def __init__(self, state):
        super().__init__(_K, state)
