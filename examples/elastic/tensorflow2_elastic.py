#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Train a small TensorFlow model with workers that may be lost and added.

    horovodrun -np 4 --min-np 2 --max-np 4 -H localhost:4 python tensorflow2_elastic.py

The data is made up: the sign of a weighted sum. What makes the script elastic is marked with
"elastic:".
"""

import argparse

import horovod.tensorflow as hvd
import tensorflow as tf


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--batches", type=int, default=400)
    parser.add_argument("--batch-size", type=int, default=32, help="of each rank")
    return parser.parse_args()


def make_batch(batch, rank, count):
    images = tf.random.stateless_normal([count, 16], seed=[batch, rank])
    labels = tf.cast(tf.reduce_sum(images * tf.range(16.0), axis=1) > 0, tf.int64)
    return images, labels


def main():
    arguments = parse_arguments()
    hvd.init()
    model = tf.keras.Sequential([tf.keras.layers.Dense(16, "relu"), tf.keras.layers.Dense(2)])
    model.build((None, 16))
    optimizer = tf.keras.optimizers.SGD(0.05, momentum=0.9)
    loss_of = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    @tf.function
    def train_step(images, labels):
        with tf.GradientTape() as tape:
            loss = loss_of(labels, model(images, training=True))
        tape = hvd.DistributedGradientTape(tape)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    # elastic: everything that training must not lose
    state = hvd.elastic.TensorFlowKerasState(model, optimizer, batch=0)

    def on_reset():
        if hvd.rank() == 0:
            print(f"{hvd.size()} workers from batch {state.batch}", flush=True)

    state.register_reset_callbacks([on_reset])

    # elastic: starts anew, from the last commit, whenever workers were lost or added
    @hvd.elastic.run
    def train(state):
        while state.batch < arguments.batches:
            batch = make_batch(state.batch, hvd.rank(), arguments.batch_size)
            loss = train_step(*batch)
            state.batch += 1
            if state.batch % 100 == 0 and hvd.rank() == 0:
                print(f"batch {state.batch}: loss {float(loss):.4f}", flush=True)
            # elastic: from here training goes on if a worker is lost
            state.commit()

    train(state)
    if hvd.rank() == 0:
        print("done", flush=True)


if __name__ == "__main__":
    main()
