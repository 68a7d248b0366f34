#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Train a small GPT-like model to continue text, character by character, on any number of ranks.

    horovodrun -np 2 python jax_gpt.py

The text is the licence of Python, which every installation carries, so nothing is downloaded.
Shows clipping, gradient accumulation (optax.MultiSteps) and a learning-rate schedule with Horovod:
none of them needs a special call. The step donates its arguments, so weights are updated in place.
"""

import argparse
import functools

import horovod.jax as hvd
import jax
import jax.numpy as jnp
import numpy as np
import optax


def load_text():
    import _sitebuiltins  # noqa: F401 - makes sure that the site module has run

    license.MAXLINES = 10**9
    license._Printer__setup()
    return "\n".join(license._Printer__lines)


def make_params(key, symbols, length, width=96, depth=3):
    keys = iter(jax.random.split(key, 3 + 4 * depth))

    def matrix(rows, columns):
        return jax.random.normal(next(keys), (rows, columns)) / np.sqrt(rows)

    def block():
        return {
            "norm1": jnp.ones(width),
            "qkv": matrix(width, 3 * width),
            "out": matrix(width, width),
            "norm2": jnp.ones(width),
            "up": matrix(width, 4 * width),
            "down": matrix(4 * width, width),
        }

    return {
        "tokens": jax.random.normal(next(keys), (symbols, width)) * 0.02,
        "places": jax.random.normal(next(keys), (length, width)) * 0.02,
        "blocks": [block() for _ in range(depth)],
        "norm": jnp.ones(width),
        "head": matrix(width, symbols),
    }


def normalise(x, scale):
    x = x - x.mean(-1, keepdims=True)
    return x * jax.lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + 1e-5) * scale


def attend(block, x, heads=4):
    batch, length, width = x.shape
    parts = jnp.split(x @ block["qkv"], 3, axis=-1)
    q, k, v = (part.reshape(batch, length, heads, -1).swapaxes(1, 2) for part in parts)
    scores = q @ k.swapaxes(2, 3) / np.sqrt(width // heads)
    scores = jnp.where(jnp.tril(jnp.ones((length, length), bool)), scores, -1e9)
    mixed = jax.nn.softmax(scores) @ v
    return mixed.swapaxes(1, 2).reshape(batch, length, width) @ block["out"]


def predict(params, tokens):
    x = params["tokens"][tokens] + params["places"][: tokens.shape[1]]
    for block in params["blocks"]:
        x = x + attend(block, normalise(x, block["norm1"]))
        x = x + jax.nn.gelu(normalise(x, block["norm2"]) @ block["up"]) @ block["down"]
    return normalise(x, params["norm"]) @ params["head"]


def loss_of(params, tokens):
    logits = predict(params, tokens[:, :-1])
    return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch-size", type=int, default=8, help="sequences per rank and pass")
    parser.add_argument("--accumulate", type=int, default=2, help="backward passes per step")
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--bf16-allreduce", action="store_true", help="send gradients as bfloat16")
    return parser.parse_args()


def make_optimizer(arguments):
    schedule = optax.cosine_decay_schedule(arguments.lr, arguments.steps)
    inner = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(schedule))
    compression = hvd.Compression.bf16 if arguments.bf16_allreduce else hvd.Compression.none
    optimizer = hvd.DistributedOptimizer(inner, compression=compression)
    return optax.MultiSteps(optimizer, arguments.accumulate)


def main():
    arguments = parse_arguments()
    hvd.init()
    text = load_text()
    symbols = sorted(set(text))
    number_of = {symbol: i for i, symbol in enumerate(symbols)}
    data = np.array([number_of[symbol] for symbol in text], np.int32)

    optimizer = make_optimizer(arguments)
    params = make_params(jax.random.PRNGKey(hvd.rank()), len(symbols), arguments.length)
    params = hvd.broadcast_parameters(params, root_rank=0)
    state = optimizer.init(params)

    @functools.partial(jax.jit, donate_argnums=(0, 1))
    def train_pass(params, state, tokens):
        loss, grads = jax.value_and_grad(loss_of)(params, tokens)
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state, loss

    random = np.random.RandomState(hvd.rank())
    for step in range(arguments.steps):
        losses = []
        for _ in range(arguments.accumulate):
            starts = random.randint(0, len(data) - arguments.length - 1, arguments.batch_size)
            tokens = np.stack([data[s : s + arguments.length + 1] for s in starts])
            params, state, loss = train_pass(params, state, tokens)
            losses.append(loss)
        if step % 20 == 0 or step == arguments.steps - 1:
            mean = hvd.allreduce(jnp.stack(losses).mean(), name="loss")
            if hvd.rank() == 0:
                print(f"step {step:4d}  loss {mean:.4f}", flush=True)
    hvd.shutdown()


if __name__ == "__main__":
    main()
