# SPDX-License-Identifier: Apache-2.0
"""Stand-alone Keras (`import keras`) on any number of ranks, with a saved model taken up again.

horovodrun -np 2 python keras_fit.py
"""

import os
import tempfile

import horovod.keras as hvd
import keras
import numpy as np

hvd.init()


def make_points(count, seed):
    """Points in two interleaved spirals."""
    random = np.random.RandomState(seed)
    labels = random.randint(0, 2, count)
    angle = random.rand(count) * 3 * np.pi
    radius = angle / 10 + 0.02 * random.randn(count)
    x = np.stack([np.cos(angle + np.pi * labels), np.sin(angle + np.pi * labels)], axis=1)
    return (x * radius[:, None]).astype("float32"), labels


points, labels = make_points(16384, seed=1)
mine = slice(hvd.rank(), None, hvd.size())


def train(model, epochs):
    model.fit(
        points[mine],
        labels[mine],
        batch_size=64,
        epochs=epochs,
        verbose=2 if hvd.rank() == 0 else 0,
        callbacks=[
            hvd.callbacks.BroadcastGlobalVariablesCallback(0),
            hvd.callbacks.MetricAverageCallback(),
        ],
    )


model = keras.Sequential(
    [
        keras.layers.Input((2,)),
        keras.layers.Dense(64, activation="relu"),
        keras.layers.Dense(64, activation="relu"),
        keras.layers.Dense(1, activation="sigmoid"),
    ]
)
model.compile(
    optimizer=hvd.DistributedOptimizer(keras.optimizers.Adam(0.003)),
    loss="binary_crossentropy",
    metrics=["accuracy"],
)
train(model, epochs=3)

# One rank writes, all read: load_model() gives the optimizer back wrapped and with its state. The
# file itself holds no trace of Horovod.
path = os.path.join(tempfile.gettempdir(), f"keras_fit_{os.getppid()}.keras")
if hvd.rank() == 0:
    model.save(path)
hvd.allreduce(0.0, name="file is there")
model = hvd.load_model(path)
train(model, epochs=2)

if hvd.rank() == 0:
    loss, accuracy = model.evaluate(*make_points(2048, seed=2), verbose=0)
    print(f"accuracy on new points: {accuracy:.4f}")
    os.remove(path)
