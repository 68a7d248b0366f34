# SPDX-License-Identifier: Apache-2.0
"""A training loop of one's own, on any number of ranks.

    horovodrun -np 2 python tensorflow2_custom_loop.py

Each rank trains on its own share of the data; gradients are averaged by the tape.
"""

import argparse

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--batch-size", type=int, default=64)
arguments = parser.parse_args()

hvd.init()

# One GPU per rank, if there are any.
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
dataset = (
    tf.data.Dataset.from_tensor_slices((images[mine], labels[mine]))
    .shuffle(10000, seed=hvd.rank())
    .batch(arguments.batch_size, drop_remainder=True)
)

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
loss_of = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)

# Together the ranks take steps of size() batches, so the rate grows with them.
optimizer = tf.keras.optimizers.Adam(0.001 * hvd.size())


@tf.function
def train_step(x, y):
    with tf.GradientTape() as tape:
        loss = loss_of(y, model(x, training=True))
    tape = hvd.DistributedGradientTape(tape)
    grads = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(grads, model.trainable_variables))
    return loss


is_first = True
for epoch in range(arguments.epochs):
    for x, y in dataset:
        loss = train_step(x, y)
        if is_first:
            # Now that all variables exist, every rank takes those of rank 0.
            hvd.broadcast_variables(model.variables, root_rank=0)
            variables = optimizer.variables
            hvd.broadcast_variables(variables() if callable(variables) else variables, root_rank=0)
            is_first = False
    mean = hvd.allreduce(loss)
    if hvd.rank() == 0:
        print(f"epoch {epoch + 1}: loss {float(mean):.4f}", flush=True)

test_images, test_labels = make_images(1024, seed=2)
predicted = np.argmax(model.predict(test_images[mine], verbose=0), axis=1)
accuracy = hvd.allreduce(tf.constant(np.mean(predicted == test_labels[mine])))
if hvd.rank() == 0:
    print(f"accuracy on new images: {float(accuracy):.4f}")
    model.save_weights("custom_loop.weights.h5")
