# SPDX-License-Identifier: Apache-2.0
"""The job that computes datasets, in Spark tasks:

python -m horovod.spark.tensorflow.compute_worker /shared/service.json

It has as many workers as Spark's default parallelism. The driver writes the file, which the
training job reads (horovod.tensorflow.data.compute_service).
"""

import horovod.spark
from horovod.tensorflow.data.compute_service import (
    check_size,
    compute_worker_fn,
    open_service,
    parse_arguments,
)


def main(dispatchers: int, dispatcher_side: str, configfile: str, timeout: int) -> None:
    """Serve until the training job shuts the service down."""
    from pyspark.sql import SparkSession

    context = SparkSession.builder.getOrCreate().sparkContext
    size = context.defaultParallelism
    check_size(size, dispatchers)
    service, config = open_service(size, dispatchers, dispatcher_side, configfile, timeout)
    try:
        horovod.spark.run(compute_worker_fn, (config,), num_proc=size)
    finally:
        service.shutdown()


if __name__ == "__main__":
    main(**vars(parse_arguments()))
