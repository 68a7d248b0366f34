# SPDX-License-Identifier: Apache-2.0
"""Keras `fit` with every callback: warm-up, schedule, averaged metrics, early stop, checkpoint.

    horovodrun -np 2 python keras_callbacks.py
    KERAS_BACKEND=torch horovodrun -np 2 python keras_callbacks.py

A second run with the same --checkpoint goes on where the first one ended.
"""

import argparse
import os

import horovod.keras as hvd
import keras
import numpy as np

parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
parser.add_argument("--epochs", type=int, default=6)
parser.add_argument("--checkpoint", default="keras_callbacks.keras")
arguments = parser.parse_args()

hvd.init()
keras.utils.set_random_seed(1 + hvd.rank())

# Points in three clouds; every rank takes its share.
random = np.random.RandomState(0)
labels = random.randint(0, 3, 3072)
points = (random.randn(3072, 2) * 0.4 + np.array([[0, 1], [1, -1], [-1, -1]])[labels]).astype(
    "float32"
)
mine = slice(hvd.rank(), 2048, hvd.size())
check = slice(2048 + hvd.rank(), None, hvd.size())

# Rank 0 looks; the file must be on a disk that all ranks see.
has_checkpoint = bool(hvd.broadcast(float(os.path.exists(arguments.checkpoint)), 0, name="has"))
if has_checkpoint:
    model = hvd.load_model(arguments.checkpoint)  # its optimizer comes back wrapped, with its state
else:
    model = keras.Sequential(
        [keras.layers.Input((2,)), keras.layers.Dense(16, "relu"), keras.layers.Dense(3, "softmax")]
    )
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.02 * hvd.size(), momentum=0.9))
    model.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"])

rate = 0.02 * hvd.size()
callbacks = [
    hvd.callbacks.BroadcastGlobalVariablesCallback(0),  # all begin like rank 0
    hvd.callbacks.MetricAverageCallback(),  # before those that look at metrics
    hvd.callbacks.LearningRateWarmupCallback(initial_lr=rate, warmup_epochs=2, verbose=0),
    hvd.callbacks.LearningRateScheduleCallback(initial_lr=rate, start_epoch=2, multiplier=0.5),
    keras.callbacks.EarlyStopping("val_loss", patience=3),  # averaged, so all stop together
]
if hvd.rank() == 0:
    callbacks.append(keras.callbacks.ModelCheckpoint(arguments.checkpoint))
history = model.fit(
    points[mine],
    labels[mine],
    batch_size=32,
    epochs=arguments.epochs,
    validation_data=(points[check], labels[check]),
    callbacks=callbacks,
    verbose=0,
)
if hvd.rank() == 0:
    begun = "resumed" if has_checkpoint else "new"
    for name in ("loss", "val_loss", "val_accuracy"):
        values = history.history[name]
        print(f"{begun} {name} {values[0]:.4f} -> {values[-1]:.4f}", flush=True)
