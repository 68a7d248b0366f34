# SPDX-License-Identifier: Apache-2.0
"""One worker of an elastic TensorFlow training; TEST_MODE=loop: a compiled step, fit: Keras' fit().

The model is linear, in double precision and with factors that are exact in single precision, so
that NumPy comes to the same weights from the history of samples (elastic_replay.py).
"""

import hashlib
import json
import os
import time

import faults
import horovod.tensorflow as hvd
import horovod.tensorflow.keras as hvd_keras
import numpy as np
import tensorflow as tf
from elastic_replay import FEATURES, MOMENTUM, RATE, sample
from faults import FOLDER, WORKER, write
from horovod.common.elastic import exchange_numbers
from horovod.common.library import native

STEPS = int(os.environ.get("TEST_STEPS", "30"))
FINAL_SIZE = int(os.environ.get("TEST_FINAL_SIZE", "0"))


def variables_of(optimizer):
    return optimizer.variables() if callable(optimizer.variables) else optimizer.variables


def check_same(model, optimizer, where):
    """Have all ranks, also those that have just come, the same weights and momenta?"""
    digest = hashlib.sha256()
    for variable in [*model.variables, *variables_of(optimizer)]:
        digest.update(np.asarray(variable).tobytes())
    numbers = exchange_numbers(int.from_bytes(digest.digest()[:7], "little"), "hash")
    if len(set(numbers)) != 1:
        write("wrong", f"{WORKER}: {where}: {numbers}")
        os._exit(9)


def make_model():
    is_source = hvd.rank() == 0 and native.generation()["epoch"] == 1
    value = "ones" if is_source else "random_normal"
    layer = tf.keras.layers.Dense(1, use_bias=False, kernel_initializer=value, dtype="float64")
    model = tf.keras.Sequential([layer])
    model.build((None, FEATURES))
    return model, tf.keras.optimizers.SGD(RATE, momentum=MOMENTUM)


def run_loop():
    model, optimizer = make_model()

    @tf.function
    def train_step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.square(model(x, training=True) - y))
        tape = hvd.DistributedGradientTape(tape)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

    state = hvd.elastic.TensorFlowKerasState(model, optimizer, step=0, history=())

    @hvd.elastic.run
    def train(state):
        check_same(model, optimizer, f"at step {state.step}")
        write(f"log.{WORKER}.{os.getpid()}", f"train {state.step} {hvd.rank()} {hvd.size()}")
        while state.step < STEPS or hvd.size() < FINAL_SIZE:
            time.sleep(0.02)
            faults.pass_point("step", state.step, hvd.rank())
            indices = exchange_numbers(state.step * 16 + hvd.rank(), "index")
            train_step(*sample(indices[hvd.rank()]))
            state.step, state.history = state.step + 1, (*state.history, indices)
            state.commit()

    train(state)
    check_same(model, optimizer, "in the end")
    if hvd.rank() == 0:
        weights = np.asarray(model.trainable_variables[0]).ravel().tolist()
        answer = {"history": state.history, "weights": weights, "size": hvd.size()}
        (FOLDER / "answer").write_text(json.dumps(answer), encoding="utf-8")


def run_fit():
    model, optimizer = make_model()
    optimizer = hvd_keras.DistributedOptimizer(optimizer)
    model.compile(optimizer=optimizer, loss="mse")
    state = hvd_keras.elastic.KerasState(model, batch=0, epoch=0)

    class Fault(tf.keras.callbacks.Callback):
        def on_batch_begin(self, batch, logs=None):
            faults.pass_point("step", state.epoch * 10 + batch, hvd.rank())

    @hvd_keras.elastic.run
    def train(state):
        check_same(model, model.optimizer, f"in epoch {state.epoch}")
        x = np.concatenate([sample(i * 16 + hvd.rank())[0] for i in range(40)])
        model.fit(
            *(x, x.sum(axis=1, keepdims=True)),
            batch_size=4,
            steps_per_epoch=10,
            epochs=3 - state.epoch,
            callbacks=[
                Fault(),
                hvd_keras.elastic.UpdateBatchStateCallback(state),
                hvd_keras.elastic.UpdateEpochStateCallback(state),
                hvd_keras.elastic.CommitStateCallback(state, batches_per_commit=2),
            ],
            verbose=0,
        )

    train(state)
    check_same(model, model.optimizer, "in the end")
    if hvd.rank() == 0:
        answer = {"epoch": state.epoch, "size": hvd.size()}
        (FOLDER / "answer").write_text(json.dumps(answer), encoding="utf-8")


if __name__ == "__main__":
    hvd.init()
    {"loop": run_loop, "fit": run_fit}[os.environ["TEST_MODE"]]()
    hvd.shutdown()
