# SPDX-License-Identifier: Apache-2.0
"""Batch normalisation over the batches of all ranks."""

from typing import Any

import tensorflow as tf

from horovod.tensorflow.mpi_ops import Sum, _allreduce, size

_KERAS_3 = getattr(tf.keras, "__version__", "2").startswith("3") or not hasattr(
    tf.keras.layers.BatchNormalization, "_calculate_mean_and_var"
)


def _combine(mean, variance):
    """Moments of all ranks' values from each rank's; every rank counts the same."""
    ranks = size()
    if ranks == 1:
        return mean, variance
    stack = tf.stack([mean, variance + tf.square(mean)])
    total = _allreduce(stack, op=Sum)
    mean, mean_of_squares = tf.unstack(total / tf.cast(ranks, total.dtype))
    return mean, mean_of_squares - tf.square(mean)


_Base = tf.keras.layers.BatchNormalization


class _WithUpdateOps(_Base):
    """Keras 2: graphs of TensorFlow 1 look for the updates in a collection."""

    def call(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Normalise a batch; while training, with the statistics of all ranks."""
        result = super().call(inputs, *args, **kwargs)
        if not tf.executing_eagerly():
            for update in getattr(self, "updates", None) or ():
                tf.compat.v1.add_to_collection(tf.compat.v1.GraphKeys.UPDATE_OPS, update)
        return result


class SyncBatchNormalization(_Base if _KERAS_3 else _WithUpdateOps):
    """Normalises with mean and variance over the batches of all ranks.

    It matters where each rank's batch is small. All ranks must run it equally often.
    """

    def __init__(self, fused: bool = False, **kwargs: Any) -> None:
        if fused in (True, None):
            raise ValueError("SyncBatchNormalization does not support fused=True.")
        kwargs.setdefault("name", "sync_batch_normalization")
        if not _KERAS_3:
            kwargs["fused"] = fused
        super().__init__(**kwargs)

    def _moments(self, inputs, *args, **kwargs):
        mean, variance = super()._moments(inputs, *args, **kwargs)
        return _combine(mean, variance)
