#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One training step with TensorFlow: Horovod against one process and against TensorFlow's own.

    python bench/tf_step.py                      figures for 1 and 2 ranks
    python bench/tf_step.py --model ResNet50     a network of keras.applications
    python bench/tf_step.py --json out.json

Per way of training the table gives the median time of a step and the efficiency: how much of one
process's speed each rank keeps. Every rank trains on its own batch; threads per rank are the same
in all rows, so one process is not given the cores that the others share.

  one          one process, plain Keras optimizer, no Horovod
  horovod      model.fit with horovod.tensorflow.keras
  loop         a tf.function with DistributedGradientTape
  strategy     model.fit under tf.distribute.MultiWorkerMirroredStrategy (Keras 2 only)
"""

import argparse
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path

THREADS = "1"


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--model", default="mlp", help="mlp, or a name of keras.applications")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--image-size", type=int, default=96)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--ways", default="one,horovod,loop,strategy")
    parser.add_argument("--json", help="file for the figures")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    return parser.parse_args()


# ---- a rank ----


def make_model(tf, arguments):
    keras = tf.keras
    keras.utils.set_random_seed(1)
    if arguments.model == "mlp":
        layers = [keras.layers.Dense(1024, activation="relu") for _ in range(4)]
        return keras.Sequential(
            [keras.layers.Input((784,)), *layers, keras.layers.Dense(10, activation="softmax")]
        ), (784,)
    shape = (arguments.image_size, arguments.image_size, 3)
    network = getattr(keras.applications, arguments.model)
    return network(weights=None, input_shape=shape, classes=10), shape


def timed_fit(tf, model, dataset, steps, callbacks):
    times = []

    class Clock(tf.keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            times.append(time.perf_counter())

    callbacks = [*callbacks, Clock()]
    model.fit(dataset, steps_per_epoch=steps + 5, epochs=1, verbose=0, callbacks=callbacks)
    return [end - start for start, end in zip(times[4:], times[5:], strict=False)]


def timed_loop(tf, hvd, model, batch, loss_of, steps):
    optimizer = tf.keras.optimizers.SGD(0.01)

    @tf.function
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = loss_of(y, model(x, training=True))
        tape = hvd.DistributedGradientTape(tape)
        grads = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(grads, model.trainable_variables, strict=True))
        return loss

    times = []
    for _ in range(steps + 5):
        began = time.perf_counter()
        step(*batch).numpy()
        times.append(time.perf_counter() - began)
    return times[5:]


def worker(arguments):
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(int(THREADS))
    tf.config.threading.set_inter_op_parallelism_threads(2)
    way, rank = arguments.worker, 0
    strategy = None
    if way == "strategy":
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
        rank = strategy.cluster_resolver.task_id
    if way in ("horovod", "loop"):
        import horovod.tensorflow as hvd
        import horovod.tensorflow.keras as hvd_keras

        hvd.init()
        rank = hvd.rank()
    loss_of = tf.keras.losses.SparseCategoricalCrossentropy()
    optimizer = tf.keras.optimizers.SGD(0.01)
    if strategy is not None:
        with strategy.scope():
            model, shape = make_model(tf, arguments)
            model.compile(optimizer, loss_of)
    else:
        model, shape = make_model(tf, arguments)
    batch = (
        tf.random.uniform([arguments.batch_size, *shape]),
        tf.random.uniform([arguments.batch_size], 0, 10, dtype=tf.int64),
    )
    if way == "loop":
        times = timed_loop(tf, hvd, model, batch, loss_of, arguments.steps)
    else:
        dataset = tf.data.Dataset.from_tensors(batch).repeat()
        callbacks = []
        if strategy is not None:
            options = tf.data.Options()
            options.experimental_distribute.auto_shard_policy = (
                tf.data.experimental.AutoShardPolicy.OFF
            )
            # The strategy takes the batch of all workers and gives each its part.
            size = strategy.num_replicas_in_sync
            batch = tuple(tf.concat([part] * size, axis=0) for part in batch)
            dataset = tf.data.Dataset.from_tensors(batch).repeat().with_options(options)
        elif way == "horovod":
            model.compile(hvd_keras.DistributedOptimizer(optimizer), loss_of)
            callbacks = [hvd_keras.callbacks.BroadcastGlobalVariablesCallback(0)]
        else:
            model.compile(optimizer, loss_of)
        times = timed_fit(tf, model, dataset, arguments.steps, callbacks)
    if rank == 0:
        print("median_ms", 1000 * statistics.median(times), flush=True)


# ---- the parent ----


def environment():
    return dict(
        os.environ,
        TF_CPP_MIN_LOG_LEVEL="3",
        OMP_NUM_THREADS=THREADS,
        CUDA_VISIBLE_DEVICES="-1",
    )


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def command_of(way, arguments):
    command = [sys.executable, str(Path(__file__).resolve()), "--worker", way]
    for name in ("model", "batch_size", "image_size", "steps"):
        command += ["--" + name.replace("_", "-"), str(getattr(arguments, name))]
    return command


def run_strategy(command, ranks):
    cluster = {"worker": [f"127.0.0.1:{port}" for port in free_ports(ranks)]}
    processes = []
    for rank in range(ranks):
        task = {"cluster": cluster, "task": {"type": "worker", "index": rank}}
        env = dict(environment(), TF_CONFIG=json.dumps(task))
        processes.append(
            subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        )
    outputs = [process.communicate(timeout=600)[0].decode() for process in processes]
    return max(process.returncode for process in processes), outputs[0]


def run_launched(command, ranks):
    beside = Path(sys.executable).parent / "horovodrun"
    launcher = str(beside) if beside.exists() else shutil.which("horovodrun")
    command = [launcher, "-np", str(ranks), *command]
    result = subprocess.run(
        command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    return result.returncode, result.stdout.decode()


def run_one(command, ranks):
    result = subprocess.run(
        command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    return result.returncode, result.stdout.decode()


RUNNERS = {
    "one": run_one,
    "horovod": run_launched,
    "loop": run_launched,
    "strategy": run_strategy,
}


def median_ms(output):
    for line in output.splitlines():
        _, found, value = line.partition("median_ms ")
        if found:
            return float(value)
    return None


def main():
    arguments = parse_arguments()
    if arguments.worker:
        worker(arguments)
        return
    figures, alone = {}, None
    print(f"{arguments.model}, batch {arguments.batch_size} per rank, {THREADS} thread(s) per rank")
    print(f"{'way':10}{'ranks':>6}{'step ms':>10}{'efficiency':>12}")
    for way in arguments.ways.split(","):
        ranks = 1 if way == "one" else arguments.ranks
        code, output = RUNNERS[way](command_of(way, arguments), ranks)
        step = median_ms(output) if code == 0 else None
        if step is None:
            last = [line for line in output.splitlines() if "Error" in line]
            print(f"{way:10}{ranks:6}  does not run: {last[-1][:100] if last else code}")
            figures[way] = None
            continue
        alone = step if way == "one" else alone
        efficiency = alone / step if alone else float("nan")
        print(f"{way:10}{ranks:6}{step:10.2f}{efficiency:12.2f}", flush=True)
        figures[way] = {"ranks": ranks, "step_ms": step, "efficiency": efficiency}
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(figures, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
