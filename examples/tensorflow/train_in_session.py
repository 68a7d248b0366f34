# SPDX-License-Identifier: Apache-2.0
"""A graph of TensorFlow 1, trained in a MonitoredTrainingSession.

horovodrun -np 2 python train_in_session.py
"""

import argparse

import horovod.tensorflow as hvd
import numpy as np
import tensorflow.compat.v1 as tf

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=200, help="of all ranks together")
arguments = parser.parse_args()

tf.disable_eager_execution()
hvd.init()

random = np.random.RandomState(hvd.rank())
truth = np.linspace(-1.0, 1.0, 8).reshape(8, 1)


def batches():
    while True:
        x = random.randn(64, 8)
        yield x, x @ truth + 0.1 * random.randn(64, 1)


x = tf.placeholder(tf.float32, [None, 8])
y = tf.placeholder(tf.float32, [None, 1])
weights = tf.get_variable("weights", [8, 1])
loss = tf.reduce_mean(tf.square(tf.matmul(x, weights) - y))

global_step = tf.train.get_or_create_global_step()
optimizer = hvd.DistributedOptimizer(tf.train.MomentumOptimizer(0.02 * hvd.size(), 0.9))
train = optimizer.minimize(loss, global_step=global_step)

hooks = [
    # All ranks start from the variables of rank 0, fresh or restored from its checkpoint.
    hvd.BroadcastGlobalVariablesHook(0),
    tf.train.StopAtStepHook(last_step=arguments.steps // hvd.size()),
]
if hvd.rank() == 0:
    hooks.append(tf.train.LoggingTensorHook({"step": global_step, "loss": loss}, every_n_iter=20))
    tf.logging.set_verbosity(tf.logging.INFO)

# Only rank 0 writes checkpoints.
folder = "./checkpoints" if hvd.rank() == 0 else None
source = batches()
with tf.train.MonitoredTrainingSession(checkpoint_dir=folder, hooks=hooks) as session:
    while not session.should_stop():
        inputs, targets = next(source)
        found, last_loss, _ = session.run([weights, loss, train], {x: inputs, y: targets})

if hvd.rank() == 0:
    print(f"loss {last_loss:.4f}, distance to the truth {np.abs(found - truth).max():.4f}")
