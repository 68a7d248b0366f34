# SPDX-License-Identifier: Apache-2.0
"""TensorFlow's data service in Spark tasks: python -m horovod.spark.tensorflow.compute_worker."""
