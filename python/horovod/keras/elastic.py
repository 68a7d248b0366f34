# SPDX-License-Identifier: Apache-2.0
"""Elastic training with stand-alone Keras."""

import keras

from horovod._keras import elastic as _impl
from horovod.tensorflow.elastic import TensorFlowKerasState, run  # noqa: F401

_K = keras.backend


class KerasState(TensorFlowKerasState):
    """The state of a model, its optimizer and further values given as keywords."""

    def __init__(self, model, optimizer=None, **kwargs):
        super().__init__(model, optimizer=optimizer, backend=_K, **kwargs)


class CommitStateCallback(_impl.CommitStateCallbackImpl, keras.callbacks.Callback):
    """Commits the state every `batches_per_commit` batches and at the end of each epoch."""

    def __init__(self, state, batches_per_commit=1):
        super().__init__(_K, state, batches_per_commit)


class UpdateBatchStateCallback(_impl.UpdateBatchStateCallbackImpl, keras.callbacks.Callback):
    """Keeps `state.batch`."""

    def __init__(self, state):
        super().__init__(_K, state)


class UpdateEpochStateCallback(_impl.UpdateEpochStateCallbackImpl, keras.callbacks.Callback):
    """Keeps `state.epoch`."""

    def __init__(self, state):
        super().__init__(_K, state)
