# SPDX-License-Identifier: Apache-2.0
"""model.fit on any number of ranks.

horovodrun -np 2 python tensorflow2_keras_fit.py
"""

import argparse

import horovod.tensorflow.keras as hvd
import numpy as np
import tensorflow as tf

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--epochs", type=int, default=4)
parser.add_argument("--batch-size", type=int, default=64)
arguments = parser.parse_args()

hvd.init()

gpus = tf.config.list_physical_devices("GPU")
for gpu in gpus:
    tf.config.experimental.set_memory_growth(gpu, True)
if gpus:
    tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")


def make_images(count, seed):
    """Noisy copies of ten patterns, a stand-in for handwritten digits."""
    patterns = np.random.RandomState(0).rand(10, 28, 28, 1)
    random = np.random.RandomState(seed)
    labels = random.randint(0, 10, count)
    images = patterns[labels] + 0.7 * random.randn(count, 28, 28, 1)
    return images.astype("float32"), labels.astype("int64")


images, labels = make_images(8192, seed=1)
mine = slice(hvd.rank(), None, hvd.size())

model = tf.keras.Sequential(
    [
        tf.keras.layers.Input((28, 28, 1)),
        tf.keras.layers.Conv2D(16, 3, activation="relu"),
        tf.keras.layers.MaxPooling2D(),
        tf.keras.layers.Flatten(),
        tf.keras.layers.Dropout(0.25),
        tf.keras.layers.Dense(10),
    ]
)

rate = 0.001 * hvd.size()
model.compile(
    optimizer=hvd.DistributedOptimizer(tf.keras.optimizers.Adam(rate)),
    loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=["accuracy"],
)

callbacks = [
    # All ranks start from the same weights.
    hvd.callbacks.BroadcastGlobalVariablesCallback(0),
    # Metrics of all ranks; before callbacks that look at them.
    hvd.callbacks.MetricAverageCallback(),
    # From the rate of one rank to that of all, so that the first steps are not too large.
    hvd.callbacks.LearningRateWarmupCallback(initial_lr=rate, warmup_epochs=2, verbose=1),
]
# One rank is enough to write files.
if hvd.rank() == 0:
    callbacks.append(tf.keras.callbacks.ModelCheckpoint("checkpoint-{epoch}.keras"))

model.fit(
    images[mine],
    labels[mine],
    batch_size=arguments.batch_size,
    epochs=arguments.epochs,
    callbacks=callbacks,
    verbose=2 if hvd.rank() == 0 else 0,
)

if hvd.rank() == 0:
    loss, accuracy = model.evaluate(*make_images(1024, seed=2), verbose=0)
    print(f"accuracy on new images: {accuracy:.4f}")
