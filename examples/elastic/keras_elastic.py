#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Train a small Keras model by fit() with workers that may be lost and added.

    horovodrun -np 4 --min-np 2 --max-np 4 -H localhost:4 python keras_elastic.py

Works with Keras 3 on TensorFlow, PyTorch and JAX. The data is made up: the sign of a weighted sum.
What makes the script elastic is marked with "elastic:".
"""

import argparse

import horovod.keras as hvd
import keras
import numpy as np


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--batch-size", type=int, default=32, help="of each rank")
    return parser.parse_args()


def make_data(count=4096):
    images = np.random.default_rng(1).normal(size=(count, 16)).astype("float32")
    return images, (images @ np.arange(16, dtype="float32") > 0).astype("int64")


def main():
    arguments = parse_arguments()
    hvd.init()
    keras.utils.set_random_seed(42)
    model = keras.Sequential(
        [keras.Input((16,)), keras.layers.Dense(16, "relu"), keras.layers.Dense(2)]
    )
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.05, momentum=0.9))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=optimizer, loss=loss, metrics=["accuracy"])

    # elastic: everything that training must not lose
    state = hvd.elastic.KerasState(model, batch=0, epoch=0)

    # elastic: starts anew, from the last commit, whenever workers were lost or added
    @hvd.elastic.run
    def train(state):
        images, labels = make_data()
        model.fit(
            images[hvd.rank() :: hvd.size()],
            labels[hvd.rank() :: hvd.size()],
            batch_size=arguments.batch_size,
            steps_per_epoch=len(images) // hvd.size() // arguments.batch_size,
            epochs=arguments.epochs - state.epoch,
            callbacks=[
                # elastic: keep the counters of the state, and commit it every 10 batches
                hvd.elastic.UpdateBatchStateCallback(state),
                hvd.elastic.UpdateEpochStateCallback(state),
                hvd.elastic.CommitStateCallback(state, batches_per_commit=10),
            ],
            verbose=2 if hvd.rank() == 0 else 0,
        )

    train(state)
    if hvd.rank() == 0:
        print("done", flush=True)


if __name__ == "__main__":
    main()
