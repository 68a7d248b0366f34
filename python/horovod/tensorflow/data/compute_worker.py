# SPDX-License-Identifier: Apache-2.0
"""The job that computes datasets:

horovodrun -np 4 python -m horovod.tensorflow.data.compute_worker /shared/service.json
"""

import tensorflow as tf

import horovod.tensorflow as hvd
from horovod.tensorflow.data.compute_service import (
    check_size,
    compute_worker_fn,
    open_service,
    parse_arguments,
)


def main(dispatchers, dispatcher_side, configfile, timeout):
    hvd.init()
    check_size(hvd.size(), dispatchers)
    service, config = None, None
    if hvd.rank() == 0:
        service, config = open_service(
            hvd.size(), dispatchers, dispatcher_side, configfile, timeout
        )
    with tf.device("/cpu:0"):
        config = hvd.broadcast_object(config, name="TfDataServiceConfig")
    compute_worker_fn(config)
    hvd.barrier()
    if service is not None:
        service.shutdown()


if __name__ == "__main__":
    main(**vars(parse_arguments()))
