# SPDX-License-Identifier: Apache-2.0
"""tf.data service: a job that computes, a job that trains, and a file between them."""

import sys

import pytest

TRAIN = """
import sys
import tensorflow as tf
import horovod.tensorflow as hvd
from horovod.tensorflow.data.compute_service import TfDataServiceConfig, tf_data_service
hvd.init()
config = TfDataServiceConfig.read(sys.argv[1], wait_for_file_creation=True)
dataset = tf.data.Dataset.range(10)
if config.dispatcher_side == "compute":
    dataset = dataset.send_to_data_service(config, hvd.rank(), hvd.size(),
                                           processing_mode="parallel_epochs")
    found = sorted(int(x) for x in dataset)
else:
    with tf_data_service(config, hvd.rank()) as address:
        dataset = dataset.apply(tf.data.experimental.service.distribute(
            processing_mode="parallel_epochs", service=address))
        found = sorted(int(x) for x in dataset)
assert found == sorted(2 * list(range(10))), found
hvd.barrier()
if hvd.rank() == 0:
    config.compute_client().shutdown()
"""


@pytest.mark.parametrize("side", ["compute", "training"])
def test_two_jobs(tmp_path, launch_ranks, start_ranks, side):
    script, file = tmp_path / "train.py", tmp_path / "service.json"
    script.write_text(TRAIN, encoding="utf-8")
    module = "horovod.tensorflow.data.compute_worker"
    computing = start_ranks(2, sys.executable, "-m", module, file, "--dispatcher-side", side)
    trained = launch_ranks(1, sys.executable, script, file, deadline_s=150)
    if trained.returncode != 0:
        computing.terminate()
    output, _ = computing.communicate(timeout=60)
    assert trained.returncode == 0, trained.stdout[-6000:] + output[-6000:]
    assert computing.returncode == 0, output[-6000:]


def test_registration():
    from horovod.runner.common.service.compute_service import ComputeClient, ComputeService
    from horovod.runner.common.util.timeout import TimeoutException

    service = ComputeService(2, 1, key=b"k" * 32)
    try:
        client = ComputeClient(service.addresses(), b"k" * 32)
        client.register_dispatcher(0, "grpc://localhost:10000")
        client.register_dispatcher(0, "grpc://localhost:10000")
        with pytest.raises(ValueError, match="already been registered under different address"):
            client.register_dispatcher(0, "grpc://localhost:10001")
        with pytest.raises(IndexError, match=r"within \[0..1\]: 2"):
            client.register_dispatcher(2, "x")
        with pytest.raises(TimeoutException, match="Timed out waiting for dispatcher 1"):
            client.wait_for_dispatcher_registration(1, 0.1)
        with pytest.raises(TimeoutException, match="waiting for workers for dispatcher 0"):
            client.wait_for_dispatcher_worker_registration(0, 0.1)
        client.register_worker_for_dispatcher(dispatcher_id=0, worker_id=0)
        client.wait_for_dispatcher_worker_registration(0, 1)
        client.shutdown()
        client.wait_for_shutdown()
        service.wait_for_shutdown()
    finally:
        service.shutdown()
