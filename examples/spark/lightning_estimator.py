# SPDX-License-Identifier: Apache-2.0
"""The TorchEstimator for Lightning on generated data: a LightningModule learns a line.

spark-submit --master local[2] lightning_estimator.py
"""

import tempfile

import pytorch_lightning as pl
import torch
from horovod.spark.common.store import Store
from horovod.spark.lightning import TorchEstimator
from pyspark.sql import SparkSession
from pyspark.sql.functions import array, rand


class Line(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)

    def forward(self, features):
        return self.layer(features)

    def _loss(self, batch):
        found = self(batch["features"]).reshape(-1)
        return torch.nn.functional.mse_loss(found, batch["label"])

    def training_step(self, batch, _):
        return self._loss(batch)

    def validation_step(self, batch, _):
        loss = self._loss(batch)
        self.log("val_loss", loss, sync_dist=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


if __name__ == "__main__":
    spark = SparkSession.builder.appName("horovod").getOrCreate()
    df = spark.range(2000).select(array(rand(1), rand(2)).alias("features"))
    df = df.withColumn("label", 3 * df.features[0] - 2 * df.features[1] + 1)

    with tempfile.TemporaryDirectory() as folder:
        estimator = TorchEstimator(
            num_proc=2,
            store=Store.create(folder),
            model=Line(),
            feature_cols=["features"],
            label_cols=["label"],
            validation=0.1,
            batch_size=32,
            epochs=5,
            verbose=0,
            callbacks=[pl.callbacks.EarlyStopping("val_loss")],
        )
        trained = estimator.fit(df)
        for epoch in trained.getHistory():
            print(epoch)
        trained.transform(df).select("label", "label__output").show(5)
    spark.stop()
