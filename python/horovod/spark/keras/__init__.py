# SPDX-License-Identifier: Apache-2.0
"""KerasEstimator: train a Keras 3 model on a Spark DataFrame, on whichever backend Keras uses."""

from horovod.spark.keras.estimator import KerasEstimator, KerasModel

__all__ = ["KerasEstimator", "KerasModel"]
