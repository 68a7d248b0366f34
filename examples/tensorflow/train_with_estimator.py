# SPDX-License-Identifier: Apache-2.0
"""An Estimator (TensorFlow up to 2.15) on any number of ranks.

horovodrun -np 2 python train_with_estimator.py
"""

import argparse
import tempfile

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=400, help="of all ranks together")
arguments = parser.parse_args()

hvd.init()
v1 = tf.compat.v1


def make_points(count, seed):
    random = np.random.RandomState(seed)
    x = random.randn(count, 10).astype("float32")
    return x, (x[:, :5].sum(1) > x[:, 5:].sum(1)).astype("int32")


def model_fn(features, labels, mode):
    hidden = v1.layers.dense(features["x"], 32, activation=tf.nn.relu)
    logits = v1.layers.dense(hidden, 2)
    if mode == tf.estimator.ModeKeys.PREDICT:
        return tf.estimator.EstimatorSpec(mode, predictions=tf.argmax(logits, axis=1))
    loss = v1.losses.sparse_softmax_cross_entropy(labels, logits)
    if mode == tf.estimator.ModeKeys.TRAIN:
        optimizer = hvd.DistributedOptimizer(v1.train.MomentumOptimizer(0.05 * hvd.size(), 0.9))
        train = optimizer.minimize(loss, global_step=v1.train.get_global_step())
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train)
    accuracy = v1.metrics.accuracy(labels, tf.argmax(logits, axis=1))
    return tf.estimator.EstimatorSpec(mode, loss=loss, eval_metric_ops={"accuracy": accuracy})


def inputs(data, epochs):
    x, y = data
    return v1.estimator.inputs.numpy_input_fn({"x": x}, y, 64, num_epochs=epochs, shuffle=True)


x, y = make_points(8192, seed=1)
mine = slice(hvd.rank(), None, hvd.size())
# Only rank 0's checkpoints are kept.
folder = tempfile.mkdtemp(prefix="estimator-")
estimator = tf.estimator.Estimator(model_fn, model_dir=folder)
estimator.train(
    inputs((x[mine], y[mine]), epochs=None),
    steps=arguments.steps // hvd.size(),
    hooks=[hvd.BroadcastGlobalVariablesHook(0)],
)
if hvd.rank() == 0:
    result = estimator.evaluate(inputs(make_points(2048, seed=2), epochs=1))
    print(f"accuracy on new points: {result['accuracy']:.4f}")
