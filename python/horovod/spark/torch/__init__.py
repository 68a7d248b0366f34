# SPDX-License-Identifier: Apache-2.0
"""TorchEstimator: train a PyTorch model on a Spark DataFrame."""

from horovod.spark.torch.estimator import TorchEstimator, TorchModel

__all__ = ["TorchEstimator", "TorchModel"]
