# SPDX-License-Identifier: Apache-2.0
"""TorchEstimator on generated data: learns a line.

spark-submit --master local[2] torch_estimator.py
"""

import tempfile

import torch
from horovod.spark.common.store import Store
from horovod.spark.torch import TorchEstimator
from pyspark.ml.feature import VectorAssembler
from pyspark.sql import SparkSession
from pyspark.sql.functions import rand

if __name__ == "__main__":
    spark = SparkSession.builder.appName("horovod").getOrCreate()
    df = spark.range(2000).select(rand(1).alias("a"), rand(2).alias("b"))
    df = df.withColumn("label", 3 * df.a - 2 * df.b + 1)
    df = VectorAssembler(inputCols=["a", "b"], outputCol="features").transform(df)

    model = torch.nn.Linear(2, 1)
    with tempfile.TemporaryDirectory() as folder:
        estimator = TorchEstimator(
            num_proc=2,
            store=Store.create(folder),
            model=model,
            optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
            loss=torch.nn.functional.mse_loss,
            feature_cols=["features"],
            label_cols=["label"],
            validation=0.1,
            batch_size=32,
            epochs=5,
            verbose=0,
        )
        trained = estimator.fit(df)
        for epoch in trained.getHistory():
            print(epoch)
        trained.transform(df).select("label", "label__output").show(5)
    spark.stop()
