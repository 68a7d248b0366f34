# SPDX-License-Identifier: Apache-2.0
"""Ranks in Spark tasks: each adds its rank to a sum.

spark-submit --master local[2] run_numpy.py
"""

import horovod.spark
from pyspark.sql import SparkSession


def work(scale):
    import horovod.numpy as hvd
    import numpy as np

    hvd.init()
    total = hvd.allreduce(np.array([float(hvd.rank())]), op=hvd.Sum)
    print(f"rank {hvd.rank()} of {hvd.size()}: the sum is {total[0]}")
    return total[0] * scale


if __name__ == "__main__":
    spark = SparkSession.builder.appName("horovod").getOrCreate()
    print(horovod.spark.run(work, args=(10,), num_proc=2))
    spark.stop()
