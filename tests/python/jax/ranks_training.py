# SPDX-License-Identifier: Apache-2.0
"""Training on parts of a batch is training on the whole batch, and all ranks have equal weights."""

import horovod.jax as hvd
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
BATCH, STEPS = 12, 100
RANDOM = np.random.RandomState(3)
DATA = jnp.asarray(RANDOM.rand(STEPS, BATCH, 10) - 0.5, jnp.float32)
LABELS = jnp.asarray((np.asarray(DATA).sum(-1) > 0).astype("int32"))


def make_params(seed=0):
    keys = jax.random.split(jax.random.PRNGKey(seed), 2)
    return {
        "first": {"w": jax.random.normal(keys[0], (10, 16)) * 0.3, "b": jnp.zeros(16)},
        "second": {"w": jax.random.normal(keys[1], (16, 2)) * 0.3, "b": jnp.zeros(2)},
    }


def loss_of(params, x, y):
    hidden = jnp.tanh(x @ params["first"]["w"] + params["first"]["b"])
    logits = hidden @ params["second"]["w"] + params["second"]["b"]
    return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()


def train(optimizer, params, x, y, gradient=None, steps=STEPS):
    gradient = gradient or jax.value_and_grad(loss_of)

    @jax.jit
    def step(params, state, x, y):
        loss, grads = gradient(params, x, y)
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state, loss

    state, losses = optimizer.init(params), []
    for i in range(steps):
        params, state, loss = step(params, state, x[i], y[i])
        losses.append(loss)
    return params, np.asarray(losses)


def my_part(array):
    return array.reshape(STEPS, SIZE, BATCH // SIZE, *array.shape[2:])[:, RANK]


def check_equal_on_ranks(params):
    leaves = [np.asarray(leaf) for leaf in jax.tree_util.tree_leaves(params)]
    for others in hvd.allgather_object(leaves):
        assert all(np.array_equal(a, b) for a, b in zip(leaves, others, strict=True))


def check_like_one_process(params, losses, optimizer, steps=STEPS):
    check_equal_on_ranks(params)
    whole, expected = train(optimizer, make_params(), DATA, LABELS, steps=steps)
    mean = np.mean(hvd.allgather_object(losses), axis=0)
    assert np.allclose(mean, expected, atol=1e-4)
    assert mean[-10:].mean() < mean[:10].mean() or steps < STEPS
    for ours, theirs in zip(
        jax.tree_util.tree_leaves(params), jax.tree_util.tree_leaves(whole), strict=True
    ):
        assert np.allclose(ours, theirs, atol=1e-3)


def test_optimizer():
    plain = optax.adam(1e-2)
    params = hvd.broadcast_parameters(make_params(seed=RANK))  # rank 0 has seed 0
    result = train(hvd.DistributedOptimizer(plain), params, my_part(DATA), my_part(LABELS))
    check_like_one_process(*result, plain)


def test_optimizer_in_a_chain():
    def chain(inner):
        return optax.chain(optax.clip(10.0), inner, optax.scale(1.0))

    plain = chain(optax.sgd(0.1, momentum=0.9))
    ours = chain(hvd.DistributedOptimizer(optax.sgd(0.1, momentum=0.9), num_groups=2))
    result = train(ours, make_params(), my_part(DATA), my_part(LABELS))
    check_like_one_process(*result, plain)


def test_multi_steps():
    plain = optax.MultiSteps(optax.sgd(0.1), 4)
    ours = optax.MultiSteps(hvd.DistributedOptimizer(optax.sgd(0.1)), 4)
    result = train(ours, make_params(), my_part(DATA), my_part(LABELS))
    check_like_one_process(*result, plain)


def test_value_and_grad():
    plain = optax.sgd(0.1)
    gradient = hvd.value_and_grad(loss_of, gradient_predivide_factor=2.0)
    result = train(plain, make_params(), my_part(DATA), my_part(LABELS), gradient, steps=20)
    check_like_one_process(*result, plain, steps=20)


def test_grad():
    params, x, y = make_params(), my_part(DATA)[0], my_part(LABELS)[0]
    expected = jax.grad(loss_of)(params, DATA[0], LABELS[0])
    for function in (hvd.grad(loss_of), jax.jit(hvd.grad(loss_of, op=hvd.Average))):
        ours, theirs = map(jax.tree_util.tree_leaves, (function(params, x, y), expected))
        assert all(np.allclose(a, b, atol=1e-6) for a, b in zip(ours, theirs, strict=True))
    # A program that ends with the collective: jaxlib 0.6 needs help with some of them.
    grads, aux = hvd.grad(lambda p: (loss_of(p, x, y), "more"), has_aux=True)(params)
    assert aux == "more" and jax.tree_util.tree_structure(grads) is not None


def test_compression_keeps_ranks_equal():
    for compression in (hvd.Compression.fp16, hvd.Compression.bf16):
        optimizer = hvd.DistributedOptimizer(optax.sgd(0.1), compression=compression)
        params, losses = train(optimizer, make_params(), my_part(DATA), my_part(LABELS), steps=20)
        check_equal_on_ranks(params)
        assert np.all(np.isfinite(losses))


def test_bad_choices():
    with pytest.raises(ValueError, match="gradient_predivide_factor not supported"):
        hvd.DistributedOptimizer(optax.sgd(0.1), op=hvd.Sum, gradient_predivide_factor=2.0)
    with pytest.raises(ValueError, match="num_groups"):
        hvd.DistributedOptimizer(optax.sgd(0.1), num_groups=-1)
