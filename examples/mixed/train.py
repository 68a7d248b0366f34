# SPDX-License-Identifier: Apache-2.0
"""One job, several frameworks: each rank computes gradients with its own, and all average them.

    horovodrun -np 3 python train.py --rank torch --rank mxnet --rank numpy

The i-th `--rank` is for rank i: the name of a framework and, after `=`, the Python interpreter that
has it, as frameworks seldom share an environment:

    horovodrun -np 4 python train.py --rank torch=/envs/torch/bin/python \\
        --rank tensorflow=/envs/tf/bin/python --rank mxnet=/envs/mxnet/bin/python --rank numpy

Names that begin with a slash are the same for every framework, so ranks meet under them. The model
is a softmax regression on generated points; at the end all ranks must hold the same bits, and what
one process computes with the whole data.

Another framework is one more function below and one more line in FRAMEWORKS.
"""

import argparse
import os
import sys

import numpy as np

POINTS, FEATURES, CLASSES, STEPS, RATE = 240, 8, 3, 20, 0.5


def make_data():
    random = np.random.RandomState(7)
    labels = random.randint(0, CLASSES, POINTS)
    centers = random.randn(CLASSES, FEATURES)
    data = centers[labels] + 0.5 * random.randn(POINTS, FEATURES)
    return data.astype("float32"), labels


def gradients(w, b, data, labels):
    """(loss, gradient of w, gradient of b) of the mean cross-entropy, with NumPy."""
    scores = data @ w + b
    scores = np.exp(scores - scores.max(1, keepdims=True))
    scores /= scores.sum(1, keepdims=True)
    loss = -np.log(scores[np.arange(len(labels)), labels]).mean()
    scores[np.arange(len(labels)), labels] -= 1
    return loss, data.T @ scores / len(labels), scores.mean(0)


# ---- what each framework brings: its package of Horovod, and a function that trains ----
# Each has (values of w and b of rank 0) by broadcast, then steps with averaged gradients, and gives
# w and b as NumPy arrays.


def train_numpy(start, data, labels):
    import horovod.numpy as hvd

    w, b = (hvd.broadcast(v, 0, name) for v, name in zip(start, ("/w", "/b")))
    for _ in range(STEPS):
        _, grad_w, grad_b = gradients(w, b, data, labels)
        w -= RATE * hvd.allreduce(grad_w.astype("float32"), "/grad.w")
        b -= RATE * hvd.allreduce(grad_b.astype("float32"), "/grad.b")
    return w, b


def train_torch(start, data, labels):
    import horovod.torch as hvd
    import torch

    w, b = (torch.from_numpy(v).requires_grad_() for v in start)
    hvd.broadcast_(w.data, 0, name="/w")
    hvd.broadcast_(b.data, 0, name="/b")
    data, labels = torch.from_numpy(data), torch.from_numpy(labels).long()
    for _ in range(STEPS):
        w.grad = b.grad = None
        torch.nn.functional.cross_entropy(data @ w + b, labels).backward()
        handles = [
            hvd.allreduce_async_(w.grad, name="/grad.w"),
            hvd.allreduce_async_(b.grad, name="/grad.b"),
        ]
        for handle in handles:
            hvd.synchronize(handle)
        with torch.no_grad():
            w -= RATE * w.grad
            b -= RATE * b.grad
    return w.detach().numpy(), b.detach().numpy()


def train_tensorflow(start, data, labels):
    import horovod.tensorflow as hvd
    import tensorflow as tf

    w, b = (tf.Variable(hvd.broadcast(v, 0, name)) for v, name in zip(start, ("/w", "/b")))
    for _ in range(STEPS):
        with tf.GradientTape() as tape:
            scores = tf.matmul(data, w) + b
            loss = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, scores)
            loss = tf.reduce_mean(loss)
        grad_w, grad_b = tape.gradient(loss, [w, b])
        w.assign_sub(RATE * hvd.allreduce(grad_w, name="/grad.w"))
        b.assign_sub(RATE * hvd.allreduce(grad_b, name="/grad.b"))
    return w.numpy(), b.numpy()


def train_mxnet(start, data, labels):
    import horovod.mxnet as hvd
    import mxnet as mx

    w, b = (mx.nd.array(v) for v in start)
    hvd.broadcast_(w, 0, name="/w")
    hvd.broadcast_(b, 0, name="/b")
    data, labels = mx.nd.array(data), mx.nd.array(labels)
    w.attach_grad()
    b.attach_grad()
    for _ in range(STEPS):
        with mx.autograd.record():
            scores = mx.nd.log_softmax(mx.nd.broadcast_add(mx.nd.dot(data, w), b))
            loss = -mx.nd.pick(scores, labels).mean()
        loss.backward()
        hvd.allreduce_(w.grad, name="/grad.w")
        hvd.allreduce_(b.grad, name="/grad.b")
        w -= RATE * w.grad
        b -= RATE * b.grad
    return w.asnumpy(), b.asnumpy()


def train_jax(start, data, labels):
    import horovod.jax as hvd
    import jax
    import jax.numpy as jnp

    def loss_of(w, b):
        scores = jax.nn.log_softmax(data @ w + b)
        return -scores[jnp.arange(len(labels)), labels].mean()

    @jax.jit
    def averaged(w, b):
        grad_w, grad_b = jax.grad(loss_of, argnums=(0, 1))(w, b)
        return hvd.allreduce(grad_w, name="/grad.w"), hvd.allreduce(grad_b, name="/grad.b")

    w, b = (hvd.broadcast(jnp.asarray(v), 0, name=n) for v, n in zip(start, ("/w", "/b")))
    for _ in range(STEPS):
        grad_w, grad_b = averaged(w, b)
        # Outside of jit, where XLA would round product and difference once: others round twice.
        w, b = w - RATE * grad_w, b - RATE * grad_b
    return np.asarray(w), np.asarray(b)


FRAMEWORKS = {
    "numpy": train_numpy,
    "torch": train_torch,
    "tensorflow": train_tensorflow,
    "mxnet": train_mxnet,
    "jax": train_jax,
}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rank", action="append", required=True, metavar="FRAMEWORK[=PYTHON]")
    parser.add_argument("--framework", help=argparse.SUPPRESS)
    return parser.parse_args()


def choose(arguments):
    """The framework of this rank; goes on in its interpreter, if that is another one."""
    if arguments.framework:
        return arguments.framework
    rank = int(os.environ.get("HOROVOD_RANK", 0))
    if rank >= len(arguments.rank):
        sys.exit(f"rank {rank} has no --rank: give one for each of the ranks of -np")
    framework, _, python = arguments.rank[rank].partition("=")
    if framework not in FRAMEWORKS:
        sys.exit(f"no such framework: {framework} (there are: {', '.join(FRAMEWORKS)})")
    if python:
        os.execv(python, [python, *sys.argv, "--framework", framework])
    return framework


def start_of(rank):
    """w and b before training."""
    random = np.random.RandomState(rank)
    return random.randn(FEATURES, CLASSES).astype("float32"), np.zeros(CLASSES, "float32")


def main():
    framework = choose(parse_arguments())
    # Any package can start Horovod: there is one core in a process.
    import horovod.numpy as hvd

    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    data, labels = make_data()
    # Each rank starts elsewhere; the broadcast of rank 0 makes them equal.
    rows = POINTS // size
    mine = slice(rank * rows, (rank + 1) * rows)
    w, b = FRAMEWORKS[framework](start_of(rank), data[mine], labels[mine])

    whole = slice(0, rows * size)
    loss = gradients(w, b, data[whole], labels[whole])[0]
    results = hvd.allgather_object((framework, w.tobytes(), b.tobytes()))
    if rank == 0:
        check(results, w, b, data[whole], labels[whole], start_of(0))
        print(f"loss {loss:.4f}, the same bits on {', '.join(name for name, _, _ in results)}")


def check(results, w, b, data, labels, start):
    """All ranks hold the same bits, and nearly what one process computes."""
    assert all(result[1:] == results[0][1:] for result in results), "ranks differ"
    alone_w, alone_b = start
    for _ in range(STEPS):
        _, grad_w, grad_b = gradients(alone_w, alone_b, data, labels)
        alone_w, alone_b = alone_w - RATE * grad_w, alone_b - RATE * grad_b
    np.testing.assert_allclose(w, alone_w, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(b, alone_b, rtol=1e-4, atol=1e-5)


if __name__ == "__main__":
    main()
