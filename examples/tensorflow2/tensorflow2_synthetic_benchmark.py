# SPDX-License-Identifier: Apache-2.0
"""Images per second of a network of keras.applications, on random data.

horovodrun -np 2 python tensorflow2_synthetic_benchmark.py --model ResNet50 --batch-size 8
"""

import argparse
import time

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf

SIZES = {"ResNet50": 224, "VGG16": 224, "InceptionV3": 299, "MobileNetV2": 224}

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--model", default="ResNet50", help=f"one of {', '.join(SIZES)}, or others")
parser.add_argument("--batch-size", type=int, default=32)
parser.add_argument("--image-size", type=int, help="side of an image (default: the network's)")
parser.add_argument("--num-warmup-batches", type=int, default=2)
parser.add_argument("--num-batches-per-iter", type=int, default=5)
parser.add_argument("--num-iters", type=int, default=5)
parser.add_argument("--fp16-allreduce", action="store_true")
parser.add_argument("--bf16-allreduce", action="store_true")
parser.add_argument("--keras-fit", action="store_true", help="train by model.fit, not a loop")
arguments = parser.parse_args()

hvd.init()
gpus = tf.config.list_physical_devices("GPU")
if gpus:
    tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")

compression = hvd.Compression.none
if arguments.fp16_allreduce:
    compression = hvd.Compression.fp16
if arguments.bf16_allreduce:
    compression = hvd.Compression.bf16

side = arguments.image_size or SIZES.get(arguments.model, 224)
model = getattr(tf.keras.applications, arguments.model)(
    weights=None, input_shape=(side, side, 3), classes=1000
)
loss_of = tf.keras.losses.SparseCategoricalCrossentropy()
images = tf.random.uniform([arguments.batch_size, side, side, 3])
labels = tf.random.uniform([arguments.batch_size], 0, 1000, dtype=tf.int64)


def log(text):
    if hvd.rank() == 0:
        print(text, flush=True)


def loop():
    optimizer = tf.keras.optimizers.SGD(0.01)

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            loss = loss_of(labels, model(images, training=True))
        tape = hvd.DistributedGradientTape(tape, compression=compression)
        grads = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(grads, model.trainable_variables))

    step()
    hvd.broadcast_variables(model.variables, root_rank=0)
    return lambda count: [step() for _ in range(count)]


def fit():
    import horovod.tensorflow.keras as hvd_keras

    optimizer = hvd_keras.DistributedOptimizer(
        tf.keras.optimizers.SGD(0.01), compression=compression
    )
    model.compile(optimizer=optimizer, loss=loss_of)
    dataset = tf.data.Dataset.from_tensors((images, labels)).repeat()
    start = hvd_keras.callbacks.BroadcastGlobalVariablesCallback(0)
    model.fit(dataset, steps_per_epoch=1, epochs=1, verbose=0, callbacks=[start])
    return lambda count: model.fit(dataset, steps_per_epoch=count, epochs=1, verbose=0)


run = fit() if arguments.keras_fit else loop()
log(f"Model: {arguments.model}")
log(f"Batch size: {arguments.batch_size}")
log(f"Number of ranks: {hvd.size()}")
run(arguments.num_warmup_batches)

rates = []
for number in range(arguments.num_iters):
    began = time.perf_counter()
    run(arguments.num_batches_per_iter)
    seconds = time.perf_counter() - began
    rates.append(arguments.batch_size * arguments.num_batches_per_iter / seconds)
    log(f"Iter #{number}: {rates[-1]:.1f} img/sec per rank")

mean, deviation = np.mean(rates), 1.96 * np.std(rates)
log(f"Img/sec per rank: {mean:.1f} +-{deviation:.1f}")
log(
    f"Total img/sec on {hvd.size()} rank(s): {hvd.size() * mean:.1f} +-{hvd.size() * deviation:.1f}"
)
