# SPDX-License-Identifier: Apache-2.0
"""KerasEstimator: train a model of Keras 2 or 3 on a Spark DataFrame, on the backend Keras uses."""

from horovod.spark.keras.estimator import KerasEstimator, KerasModel

__all__ = ["KerasEstimator", "KerasModel"]
