# SPDX-License-Identifier: Apache-2.0
"""TorchEstimator for modules of Lightning 2: train a LightningModule on a Spark DataFrame."""

from horovod.spark.lightning.estimator import TorchEstimator, TorchModel

__all__ = ["TorchEstimator", "TorchModel"]
