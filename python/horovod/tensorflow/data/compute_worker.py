# SPDX-License-Identifier: Apache-2.0
"""The job that computes datasets:

horovodrun -np 4 python -m horovod.tensorflow.data.compute_worker /shared/service.json
"""

import argparse

import tensorflow as tf

import horovod.tensorflow as hvd
from horovod.runner.common.service.compute_service import ComputeService
from horovod.runner.common.util import secret
from horovod.tensorflow.data.compute_service import TfDataServiceConfig, compute_worker_fn


def main(dispatchers, dispatcher_side, configfile, timeout):
    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    if size % dispatchers:
        raise ValueError(
            f"Number of processes ({size}) must be a multiple of number of dispatchers "
            f"({dispatchers})."
        )
    service, config = None, None
    if rank == 0:
        key = secret.make_secret_key()
        service = ComputeService(dispatchers, size // dispatchers, key=key)
        config = TfDataServiceConfig(
            dispatchers=dispatchers,
            workers_per_dispatcher=size // dispatchers,
            dispatcher_side=dispatcher_side,
            addresses=service.addresses(),
            key=key,
            timeout=timeout,
        )
        config.write(configfile)
    with tf.device("/cpu:0"):
        config = hvd.broadcast_object(config, name="TfDataServiceConfig")
    compute_worker_fn(config)
    hvd.barrier()
    if service is not None:
        service.shutdown()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="tf.data compute worker")
    parser.add_argument("configfile", help="file to write, for the training job to read")
    parser.add_argument("--dispatchers", type=int, default=1)
    parser.add_argument("--dispatcher-side", choices=("compute", "training"), default="compute")
    parser.add_argument("--timeout", type=int, default=60, help="seconds to wait for others")
    arguments = parser.parse_args()
    main(arguments.dispatchers, arguments.dispatcher_side, arguments.configfile, arguments.timeout)
