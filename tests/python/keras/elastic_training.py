# SPDX-License-Identifier: Apache-2.0
"""One worker of an elastic training by Keras' fit(), on whatever backend there is."""

import hashlib
import json
import os

import faults
import horovod.keras as hvd
import keras
import numpy as np
from faults import FOLDER
from horovod.common.elastic import exchange_numbers

FINAL_SIZE = int(os.environ.get("TEST_FINAL_SIZE", "0"))  # go on until there are so many
WORKER = os.environ.get("HOROVOD_WORKER", "0")


def check_same(model, where):
    """Have all ranks, also those that have just come, the same weights and momenta?"""
    digest = hashlib.sha256()
    for variable in [*model.trainable_variables, *model.optimizer.variables]:
        digest.update(np.ascontiguousarray(keras.ops.convert_to_numpy(variable)).tobytes())
    numbers = exchange_numbers(int.from_bytes(digest.digest()[:7], "little"), "hash")
    if len(set(numbers)) != 1:
        fail(f"{where}: {numbers}")


def fail(text):
    (FOLDER / "wrong").write_text(f"{WORKER}: {text}\n", encoding="utf-8")
    os._exit(9)


def main():
    hvd.init()
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3), keras.layers.Dense(1)])
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.05, momentum=0.5))
    model.compile(optimizer=optimizer, loss="mse")
    state = hvd.elastic.KerasState(model, batch=0, epoch=0, epochs=())

    class Fault(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            faults.pass_point("step", state.epoch * 10 + batch, hvd.rank())

    class Epochs(keras.callbacks.Callback):
        """All ranks, also newcomers, must count the same epochs, each once."""

        def on_epoch_end(self, epoch, logs=None):
            numbers = exchange_numbers(state.epoch, "epoch")
            if len(set(numbers)) != 1 or state.epoch in state.epochs:
                fail(f"epoch {numbers} after {state.epochs}")
            state.epochs = (*state.epochs, state.epoch)

    @hvd.elastic.run
    def train(state):
        while state.epoch < 3 or hvd.size() < FINAL_SIZE:
            fit(state)

    def fit(state):
        check_same(model, f"in epoch {state.epoch}")
        x = np.random.default_rng(hvd.rank()).normal(size=(40, 4)).astype("float32")
        model.fit(
            *(x, x.sum(axis=1, keepdims=True)),
            batch_size=4,
            steps_per_epoch=10,
            epochs=max(1, 3 - state.epoch),
            callbacks=[
                Fault(),
                hvd.elastic.UpdateBatchStateCallback(state),
                hvd.elastic.UpdateEpochStateCallback(state),
                Epochs(),
                hvd.elastic.CommitStateCallback(state, batches_per_commit=2),
            ],
            verbose=0,
        )

    train(state)
    check_same(model, "in the end")
    if hvd.rank() == 0:
        answer = {"epoch": state.epoch, "epochs": state.epochs, "size": hvd.size()}
        (FOLDER / "answer").write_text(json.dumps(answer), encoding="utf-8")
    hvd.shutdown()


if __name__ == "__main__":
    main()
