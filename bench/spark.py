#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How soon ranks in Spark tasks meet, and how fast a TorchEstimator reads its data.

    bench/spark.py [--turns 5] [--rows 1000000] [--batch 64] [--seconds 5]

Starts Spark with two workers of two cores on this machine and prints

    start     seconds from horovod.spark.run() with four ranks to the first allreduce, and
              how many of them come on top of the start of four plain Spark tasks
    fit       seconds of TorchEstimator.fit() with two ranks: writing the rows as Parquet, training
    reading   rows per second that a rank reads from there, while both read and nothing is trained
    by hand   the same with torch.utils.data over pyarrow, without shuffling
    training  rows per second that a rank trains with, when the batch is in memory already

Use a Python in which Horovod, pyspark, pyarrow and PyTorch are installed.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time

import cloudpickle

FEATURES = 20
cloudpickle.register_pickle_by_value(sys.modules[__name__])


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--turns", type=int, default=5, help="starts to measure")
    parser.add_argument("--rows", type=int, default=1000000)
    parser.add_argument("--batch", type=int, default=64, help="rows of a batch")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each of the last figures")
    return parser.parse_args()


def start_spark(folder):
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["OMP_NUM_THREADS"] = "1"
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local-cluster[2,2,1024]").appName("horovod-bench")
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": folder,
        "spark.log.level": "ERROR",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


# ---- start ----


def first_collective():
    import horovod.numpy as hvd
    import numpy as np

    hvd.init()
    hvd.allreduce(np.ones(1))
    return time.time()


def time_of_task(_):
    time.sleep(0.2)  # so that all four are needed at once
    yield time.time() - 0.2


def measure_start(spark, turns):
    import horovod.spark

    plain, ours = [], []
    for _ in range(turns + 1):  # the first one starts Spark's Python processes
        began = time.time()
        tasks = spark.sparkContext.range(0, numSlices=4).mapPartitions(time_of_task)
        plain.append(max(tasks.collect()) - began)
        began = time.time()
        ours.append(max(horovod.spark.run(first_collective, num_proc=4)) - began)
    plain, ours = statistics.median(plain[1:]), statistics.median(ours[1:])
    print(f"start     {ours:.2f} s, {ours - plain:.2f} s beyond Spark's own start of tasks")


# ---- data ----


def make_frame(spark, rows):
    from pyspark.sql import functions as f

    values = [f.rand(i) for i in range(FEATURES)]
    frame = spark.range(rows).select(f.array(*values).alias("features"))
    return frame.withColumn("label", frame.features[0] * 3 - frame.features[1])


def make_model():
    import torch

    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(FEATURES, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1)
    )


def make_estimator(store, batch):
    import torch
    from horovod.spark.common.backend import SparkBackend
    from horovod.spark.torch import TorchEstimator

    model = make_model()
    return TorchEstimator(
        backend=SparkBackend(2),
        store=store,
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.01),
        loss=torch.nn.functional.mse_loss,
        feature_cols=["features"],
        label_cols=["label"],
        batch_size=batch,
        verbose=0,
    )


def by_hand(store, path, batch, rank, size):
    """What one would write without Horovod: row groups of this rank, cut into batches."""
    import torch

    class Rows(torch.utils.data.IterableDataset):
        def __iter__(self):
            data = store.get_parquet_dataset(path)
            groups = [g for f in data.get_fragments() for g in f.split_by_row_group()]
            for group in groups[rank::size]:
                table = group.to_table(columns=["features", "label"])
                x = table["features"].combine_chunks().flatten().to_numpy().reshape(-1, FEATURES)
                x, y = torch.from_numpy(x), torch.from_numpy(table["label"].to_numpy())
                for start in range(0, len(x), batch):
                    yield x[start : start + batch], y[start : start + batch]

    return torch.utils.data.DataLoader(Rows(), batch_size=None)


def rows_per_second(batches, batch, seconds):
    """Of an endless iterator over batches."""
    next(batches)
    count, began = 0, time.monotonic()
    while time.monotonic() - began < seconds:
        next(batches)
        count += batch
    return count / (time.monotonic() - began)


def again_and_again(loader):
    while True:
        yield from loader


def measure_rank(plan, seconds):
    """(reading, by hand, training) of this rank, in rows per second."""
    import horovod.torch as hvd
    import torch
    from horovod.spark.common.dataset import plan_batches

    hvd.init()
    store, batch, where = plan["store"], plan["batch_size"], (hvd.rank(), hvd.size())
    figures = []
    hand = by_hand(store, plan["train_path"], batch, *where)
    for loader in (plan_batches(plan, "train", *where), hand):
        hvd.barrier()
        figures.append(rows_per_second(again_and_again(loader), batch, seconds))

    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    x, y = torch.rand(batch, FEATURES), torch.rand(batch, 1)
    count, began = 0, time.monotonic()
    steps = 100
    while hvd.allreduce(torch.tensor(time.monotonic() - began), name="time") < seconds:
        for _ in range(steps):
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
        count += steps * batch
    figures.append(count / (time.monotonic() - began))
    hvd.shutdown()
    return figures


def measure_data(spark, folder, arguments):
    from horovod.spark.common import dataset
    from horovod.spark.common.store import LocalStore

    store = LocalStore(f"{folder}/store")
    estimator = make_estimator(store, arguments.batch)
    frame = make_frame(spark, arguments.rows)
    began = time.monotonic()
    dataset.prepare(store, frame, ["features", "label"], None, 20)
    written = time.monotonic() - began
    began = time.monotonic()
    estimator.fit_on_parquet()
    trained = time.monotonic() - began
    print(f"fit       {written:.1f} s of writing, {trained:.1f} s of training in one epoch")
    plan = estimator._plan(estimator.getBackend(), ["features"], False, None)
    ranks = estimator.getBackend().run(measure_rank, (plan, arguments.seconds))
    means = [statistics.mean(figures) for figures in zip(*ranks, strict=True)]
    for name, mean in zip(("reading", "by hand", "training"), means, strict=True):
        print(f"{name:10}{mean / 1e3:.0f} thousand rows/s per rank")
    print(f"reading is {means[0] / means[2]:.1f} times training, {means[0] / means[1]:.2f} by hand")


def main():
    arguments = parse_arguments()
    with tempfile.TemporaryDirectory() as folder:
        spark = start_spark(folder)
        try:
            measure_start(spark, arguments.turns)
            measure_data(spark, folder, arguments)
        finally:
            spark.stop()


if __name__ == "__main__":
    main()
