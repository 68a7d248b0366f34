#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Allreduce and one training step with JAX: Horovod against jax.distributed with its own gloo.

    python bench/jax_step.py                     both tables on two ranks
    python bench/jax_step.py --what ops --max-bytes 1048576
    python bench/jax_step.py --json out.json

Both sides run the same compiled function on the same data with the same number of threads, by
turns: each turn starts a job of ours and one of theirs. Results are checked before anything is
timed. The figures are medians over the turns; "ratio" is gloo's time divided by ours within a turn:
above 1 ours is quicker.

  ops    allreduce (sum) inside jit, 8 bytes to 64 MiB
  step   gradients of a network of WIDTHS, averaged, and plain SGD, with donated parameters
  alone  the same step without communication, on all ranks side by side: the bound
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

WIDTHS = (256, *[1024] * 25, 10)  # 25.4 million parameters
BATCH = 32


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--what", default="ops,step")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=20, help="timed calls of each kind")
    parser.add_argument("--turns", type=int, default=3, help="jobs of each side")
    parser.add_argument("--max-bytes", type=int, default=64 << 20)
    parser.add_argument("--json", help="file to write the figures to")
    parser.add_argument("--worker", choices=["horovod", "gloo"], help=argparse.SUPPRESS)
    return parser.parse_args()


# ---- the ranks ----


class Horovod:
    """Every process has its arrays; the collective is a call inside its program."""

    def __init__(self):
        import horovod.jax as hvd

        hvd.init()
        self.hvd, self.rank, self.size = hvd, hvd.rank(), hvd.size()

    def compile(self, function, donate=()):
        """function(reduce, *arrays), compiled; reduce(tree, is_mean) is the collective."""
        import jax

        op = {True: self.hvd.Average, False: self.hvd.Sum}

        def reduce(tree, is_mean):
            return self.hvd.allreduce(tree, op=op[is_mean])

        return jax.jit(lambda *arrays: function(reduce, *arrays), donate_argnums=donate)

    def share(self, array):
        return array

    def local(self, array):
        return array


class Gloo:
    """jax.distributed: one program over the devices of all processes, with lax.psum inside."""

    def __init__(self):
        import jax

        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        self.rank, self.size = int(os.environ["BENCH_RANK"]), int(os.environ["BENCH_SIZE"])
        jax.distributed.initialize(os.environ["BENCH_ADDRESS"], self.size, self.rank)
        self.mesh = jax.make_mesh((self.size,), ("ranks",), devices=jax.devices())
        self.spec = jax.sharding.PartitionSpec("ranks")

    def compile(self, function, donate=()):
        import jax

        def reduce(tree, is_mean):
            return (jax.lax.pmean if is_mean else jax.lax.psum)(tree, "ranks")

        def on_one(*arrays):
            arrays = jax.tree_util.tree_map(lambda a: a[0], arrays)
            return jax.tree_util.tree_map(lambda a: a[None], function(reduce, *arrays))

        shard_map = getattr(jax, "shard_map", None)
        if shard_map is None:
            from jax.experimental.shard_map import shard_map
        specs = {"mesh": self.mesh, "in_specs": self.spec, "out_specs": self.spec}
        return jax.jit(shard_map(on_one, **specs), donate_argnums=donate)

    def share(self, array):
        import jax

        sharding = jax.sharding.NamedSharding(self.mesh, self.spec)
        shape = (self.size, *array.shape)
        return jax.make_array_from_single_device_arrays(
            shape, sharding, [jax.device_put(array[None], jax.local_devices()[0])]
        )

    def local(self, array):
        return array.addressable_shards[0].data[0]


def median_of(call, rounds):
    import jax

    for _ in range(10):
        jax.block_until_ready(call())
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        jax.block_until_ready(call())
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def time_ops(side, arguments, figures):
    import numpy as np

    reduce = side.compile(lambda reduce, x: reduce(x, False))
    nbytes = 8
    while nbytes <= arguments.max_bytes:
        import jax.numpy as jnp

        array = side.share(jnp.full(nbytes // 4, float(side.rank + 1), jnp.float32))
        result = np.asarray(side.local(reduce(array)))
        assert np.all(result == sum(range(1, side.size + 1))), "a wrong sum"
        rounds = max(arguments.rounds, min(300, (64 << 20) // nbytes))
        figures[f"allreduce {size_text(nbytes)}"] = median_of(lambda a=array: reduce(a), rounds)
        nbytes *= 4 if nbytes < 32 else 2 if nbytes < 64 else 4


def size_text(nbytes):
    for unit, factor in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if nbytes >= factor:
            return f"{nbytes // factor} {unit}"
    return f"{nbytes} B"


def make_step():
    import jax
    import jax.numpy as jnp

    def loss_of(params, x, y):
        for w in params[:-1]:
            x = jax.nn.relu(x @ w)
        return jnp.square(x @ params[-1] - y).mean()

    def step(reduce, params, x, y):
        loss, grads = jax.value_and_grad(loss_of)(params, x, y)
        grads = reduce(grads, True)
        new = [w - 0.01 * g for w, g in zip(params, grads, strict=True)]
        return new, reduce(loss, True)

    return step


def time_step(side, arguments, figures):
    import jax
    import jax.numpy as jnp
    import numpy as np

    def start():
        random = np.random.RandomState(0)
        shapes = zip(WIDTHS, WIDTHS[1:], strict=False)
        return [jnp.asarray(random.normal(0, 0.05, s), jnp.float32) for s in shapes]

    random = np.random.RandomState(side.rank + 1)
    x = jnp.asarray(random.rand(BATCH, WIDTHS[0]), jnp.float32)
    y = jnp.asarray(random.rand(BATCH, WIDTHS[-1]), jnp.float32)
    shared = jax.tree_util.tree_map(side.share, (start(), x, y))
    step = loop(side.compile(make_step(), donate=(0,)), *shared)
    figures["losses"] = [float(np.asarray(side.local(step()))) for _ in range(3)]
    figures["step"] = median_of(step, arguments.rounds)
    alone = jax.jit(lambda *a: make_step()(lambda tree, is_mean: tree, *a), donate_argnums=(0,))
    figures["alone"] = median_of(loop(alone, start(), x, y), arguments.rounds)


def loop(function, params, x, y):
    """A call that trains one step and gives the loss."""
    state = [params]

    def step():
        state[0], loss = function(state[0], x, y)
        return loss

    return step


def worker(arguments):
    side = {"horovod": Horovod, "gloo": Gloo}[arguments.worker]()
    figures = {}
    if "ops" in arguments.what:
        time_ops(side, arguments, figures)
    if "step" in arguments.what:
        time_step(side, arguments, figures)
    if side.rank == 0:
        print("figures " + json.dumps(figures), flush=True)


# ---- the parent ----


def environment(**more):
    flags = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    return dict(os.environ, JAX_PLATFORMS="cpu", OMP_NUM_THREADS="1", XLA_FLAGS=flags, **more)


def command_of(side, arguments):
    command = [sys.executable, str(Path(__file__).resolve()), "--worker", side]
    for name in ("what", "rounds", "max_bytes"):
        command += ["--" + name.replace("_", "-"), str(getattr(arguments, name))]
    return command


def run_horovod(command, ranks):
    beside = Path(sys.executable).parent / "horovodrun"
    launcher = str(beside) if beside.exists() else shutil.which("horovodrun")
    result = subprocess.run(
        [launcher, "-np", str(ranks), *command],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=1200,
    )
    return result.returncode, result.stdout


def run_gloo(command, ranks):
    with socket.create_server(("127.0.0.1", 0)) as probe:
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    processes = []
    for rank in range(ranks):
        env = environment(BENCH_RANK=str(rank), BENCH_SIZE=str(ranks), BENCH_ADDRESS=address)
        processes.append(
            subprocess.Popen(
                command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            )
        )
    outputs = [process.communicate(timeout=1200)[0] for process in processes]
    return max(process.returncode for process in processes), "\n".join(outputs)


def figures_of(output):
    for line in output.splitlines():
        _, found, text = line.partition("figures ")
        if found:
            return json.loads(text)
    return None


def main():
    arguments = parse_arguments()
    if arguments.worker:
        worker(arguments)
        return 0
    turns = []
    for _ in range(arguments.turns):
        found = run_turn(arguments)
        if found is None:
            return 1
        turns.append(found)
    print(f"{'what':20}{'horovod us':>14}{'gloo us':>14}{'ratio':>8}")
    for name in turns[0]["horovod"]:
        print(line_of(name, [(t["horovod"][name], t["gloo"][name]) for t in turns]))
    if "step" in turns[0]["horovod"]:
        share = statistics.median(t["horovod"]["alone"] / t["horovod"]["step"] for t in turns)
        print(f"our step runs at {share:.0%} of the speed of the ranks side by side")
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(turns, indent=1), encoding="utf-8")
    return 0


def run_turn(arguments):
    """One job of each side: {side: {what: seconds}}, or None if something is wrong."""
    found = {}
    for side, run in (("horovod", run_horovod), ("gloo", run_gloo)):
        code, output = run(command_of(side, arguments), arguments.ranks)
        found[side] = figures_of(output)
        if code != 0 or found[side] is None:
            print(f"{side} does not run ({code}):\n{output[-3000:]}", file=sys.stderr)
            return None
    losses = [found[side].pop("losses", []) for side in found]
    if any(abs(a - b) > 1e-4 * abs(b) for a, b in zip(*losses, strict=True)):
        print(f"the two sides compute different losses: {losses}", file=sys.stderr)
        return None
    return found


def line_of(name, pairs):
    ours, theirs = (1e6 * statistics.median(side) for side in zip(*pairs, strict=True))
    ratio = statistics.median(b / a for a, b in pairs)
    return f"{name:20}{ours:14.1f}{theirs:14.1f}{ratio:8.2f}"


if __name__ == "__main__":
    sys.exit(main())
