# SPDX-License-Identifier: Apache-2.0
"""TensorFlow's data service in Spark tasks, used by a process outside of them."""

import subprocess
import sys

import pytest

pytest.importorskip("tensorflow")

TRAIN = """
import sys
import tensorflow as tf
from horovod.tensorflow.data.compute_service import TfDataServiceConfig
config = TfDataServiceConfig.read(sys.argv[1], wait_for_file_creation=True)
try:
    dataset = tf.data.Dataset.range(10).send_to_data_service(
        config, 0, 1, processing_mode="parallel_epochs")
    print("found", sorted(int(x) for x in dataset))
finally:
    config.compute_client().shutdown()
"""


def test_datasets_are_computed_in_spark_tasks(spark, tmp_path):
    from horovod.spark.tensorflow.compute_worker import main

    file = tmp_path / "service.json"
    command = [sys.executable, "-c", TRAIN, str(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as training:
        main(dispatchers=2, dispatcher_side="compute", configfile=str(file), timeout=60)
        output, _ = training.communicate(timeout=60)
    # A dispatcher has two of the four workers, and each of them computes the dataset.
    assert f"found {sorted(2 * list(range(10)))}" in output
    with pytest.raises(ValueError, match="must be a multiple"):
        main(dispatchers=3, dispatcher_side="compute", configfile=str(file), timeout=60)
