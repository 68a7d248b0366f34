# SPDX-License-Identifier: Apache-2.0
"""Gradients, vmap, scan, cond, donation: collectives inside what JAX does with functions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

jax.config.update("jax_enable_x64", True)

import horovod.jax as hvd  # noqa: E402

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
ROWS = 2 * SIZE + 1
SIZES = [r + 1 for r in range(SIZE)]
WEIGHTS = [np.random.RandomState(r).rand(200, 2) for r in range(SIZE)]

LINEAR = {
    "sum": lambda x: hvd.allreduce(x, op=hvd.Sum),
    "average": lambda x: hvd.allreduce(x, op=hvd.Average, prescale_factor=0.5),
    "broadcast": lambda x: hvd.broadcast(x, SIZE - 1),
    "allgather": hvd.allgather,
    "reducescatter": lambda x: hvd.reducescatter(x, op=hvd.Sum, postscale_factor=2.0),
    "reducescatter average": hvd.reducescatter,
    "alltoall": hvd.alltoall,
    "allgather of different rows": lambda x: hvd.allgather(x, sizes=SIZES),
    "barrier": lambda x: hvd.barrier(after=x),
}


def rows_of(kind):
    if kind == "alltoall":
        return 2 * SIZE
    return RANK + 1 if "different" in kind else ROWS


def all_ranks(array):
    return [np.asarray(part) for part in hvd.allgather_object(np.asarray(array))]


@pytest.mark.parametrize("is_compiled", [False, True])
@pytest.mark.parametrize("kind", LINEAR)
def test_gradient_is_the_transpose(kind, is_compiled):
    """<A x, y> = <x, A' y>, where A maps all ranks' inputs to all ranks' outputs."""
    function = LINEAR[kind]
    x = jnp.asarray(WEIGHTS[RANK][: rows_of(kind)] + RANK)
    y, vjp = jax.vjp(jax.jit(function) if is_compiled else function, x)
    cotangent = jnp.asarray(WEIGHTS[RANK][50 : 50 + len(y)] - 0.5)
    (back,) = jax.jit(vjp)(cotangent) if is_compiled else vjp(cotangent)
    assert back.shape == x.shape
    left = sum(all_ranks((y * cotangent).sum()))
    right = sum(all_ranks((x * back).sum()))
    assert np.isclose(left, right)
    tangent_out = jax.jvp(function, (x,), (x,))[1]
    assert np.allclose(tangent_out, y)


def test_gradient_of_a_group():
    def loss(tree):
        result = hvd.allreduce(tree, op=hvd.Sum)
        return (result["a"] ** 2).sum() + result["b"].sum()

    tree = {"a": jnp.full(3, float(RANK + 1)), "b": jnp.ones(2), "c": jnp.arange(4)}
    total = sum(range(1, SIZE + 1))
    for gradient in (jax.grad(loss, allow_int=True), jax.jit(jax.grad(loss, allow_int=True))):
        grads = gradient(tree)
        assert np.allclose(grads["a"], 2 * total * SIZE)
        assert np.allclose(grads["b"], SIZE)


def test_second_derivative():
    def f(x):
        return hvd.allreduce(x, op=hvd.Sum) ** 3

    value = jax.jit(jax.grad(jax.grad(f)))(1.0)
    # Both sums are taken over all ranks: 3 * 2 * (SIZE * x), times SIZE for each derivative.
    assert np.isclose(value, 6.0 * SIZE**3)


@pytest.mark.parametrize("op", ["Min", "Max", "Product", "Adasum"])
def test_no_gradient(op):
    if op == "Adasum" and SIZE & (SIZE - 1):
        pytest.skip("Adasum needs a power of two of ranks")
    with pytest.raises(NotImplementedError, match="op=Sum and op=Average only"):
        jax.grad(lambda x: hvd.allreduce(x, op=getattr(hvd, op)).sum())(jnp.ones(2))


@pytest.mark.parametrize("is_compiled", [False, True])
@pytest.mark.parametrize("kind", [k for k in LINEAR if "different" not in k])
def test_vmap(kind, is_compiled):
    function = LINEAR[kind]
    batch = np.stack([WEIGHTS[RANK][i : i + rows_of(kind)] for i in range(4)])
    expected = [function(jnp.asarray(example)) for example in batch]
    mapped = jax.vmap(function)
    result = (jax.jit(mapped) if is_compiled else mapped)(jnp.asarray(batch))
    assert np.allclose(result, np.stack(expected))
    last = jax.vmap(function, in_axes=2, out_axes=1)(jnp.moveaxis(jnp.asarray(batch), 0, 2))
    assert np.allclose(last, np.stack(expected, 1))


def test_vmap_of_gradient():
    def loss(x):
        return (hvd.allreduce(x, op=hvd.Sum) ** 2).sum()

    batch = jnp.arange(6.0).reshape(3, 2) + RANK
    expected = np.stack([jax.grad(loss)(row) for row in batch])
    assert np.allclose(jax.jit(jax.vmap(jax.grad(loss)))(batch), expected)


def test_scan():
    def body(carry, x):
        total = hvd.allreduce(x + carry, op=hvd.Sum)
        return carry + 1, total

    @jax.jit
    def loop(xs):
        return jax.lax.scan(body, 0.0, xs)

    count, totals = loop(jnp.arange(20.0) + RANK)
    ranks = sum(range(SIZE))
    assert count == 20
    assert np.allclose(totals, [SIZE * 2 * i + ranks for i in range(20)])


def test_gradient_of_scan():
    def loss(x):
        def body(carry, _):
            return hvd.allreduce(carry, op=hvd.Average) * 2, None

        return jax.lax.scan(body, x, None, length=5)[0].sum()

    assert np.allclose(jax.jit(jax.grad(loss))(jnp.ones(3)), 2.0**5)


def test_while_loop_and_fori_loop():
    @jax.jit
    def loop(x):
        x = jax.lax.fori_loop(0, 3, lambda i, v: hvd.allreduce(v, op=hvd.Sum), x)
        return jax.lax.while_loop(
            lambda v: v[0] < 1e6, lambda v: hvd.allreduce(v, op=hvd.Sum) + 1e5, x
        )

    assert np.all(np.asarray(loop(jnp.ones(2))) >= 1e6)


def test_cond():
    @jax.jit
    def choose(flag, x):
        return jax.lax.cond(
            flag, lambda v: hvd.allreduce(v, op=hvd.Sum), lambda v: hvd.broadcast(v, 0) - 1, x
        )

    x = jnp.full(2, float(RANK + 1))
    assert np.allclose(choose(True, x), sum(range(1, SIZE + 1)))
    assert np.allclose(choose(False, x), 0)


def test_remat():
    @jax.checkpoint
    def layer(x):
        return jnp.sin(hvd.allreduce(x, op=hvd.Average))

    value = jax.jit(jax.grad(lambda x: layer(layer(x)).sum()))(jnp.full(3, 0.5))
    expected = jax.grad(lambda x: jnp.sin(jnp.sin(x)).sum())(jnp.full(3, 0.5))
    assert np.allclose(value, expected)


def test_donated_arguments():
    @jax.jit
    def plain(x):
        return hvd.allreduce(x, op=hvd.Sum)

    donating = jax.jit(plain, donate_argnums=0)
    kept = jnp.ones(1000) * (RANK + 1)
    total = sum(range(1, SIZE + 1))
    assert np.allclose(plain(kept), total) and np.allclose(kept, RANK + 1)
    given = jnp.ones(1000) * (RANK + 1)
    address = given.unsafe_buffer_pointer()
    result = donating(given)
    assert np.allclose(result, total) and given.is_deleted()
    assert result.unsafe_buffer_pointer() == address


def test_arguments_that_are_used_again():
    @jax.jit
    def both(x):
        y = x * 2
        return hvd.allreduce(y, op=hvd.Sum) + y, hvd.broadcast(y, 0) + y, y

    total, root, y = both(jnp.full(5000, float(RANK + 1)))
    assert np.allclose(y, 2 * (RANK + 1))
    assert np.allclose(total, 2 * sum(range(1, SIZE + 1)) + 2 * (RANK + 1))
    assert np.allclose(root, 2 + 2 * (RANK + 1))


def test_one_name_twice_in_a_program():
    @jax.jit
    def twice(a, b):
        return hvd.allreduce(a, op=hvd.Sum, name="x"), hvd.allreduce(b, op=hvd.Sum, name="x")

    for _ in range(10):
        first, second = twice(jnp.ones(70000), jnp.full(70000, 2.0))
        assert np.allclose(first, SIZE) and np.allclose(second, 2 * SIZE)


def test_a_rank_that_traces_alone():
    """Ranks agree about names, however often each of them has traced the function."""

    @jax.jit
    def step(batch):
        return [hvd.allreduce(batch.sum() * k, op=hvd.Sum) for k in range(3)]

    step(jnp.ones(4))
    results = step(jnp.ones(4 + RANK))
    expected = sum(4 + r for r in range(SIZE))
    assert np.allclose(results, [0, expected, 2 * expected])


def test_compiled_ahead_of_time():
    compiled = jax.jit(lambda x: hvd.allreduce(x, op=hvd.Sum)).lower(jnp.ones(3)).compile()
    assert np.allclose(compiled(jnp.ones(3)), SIZE)


def test_shapes_without_running():
    shape = jax.eval_shape(hvd.allgather, jax.ShapeDtypeStruct((3, 2), jnp.float32))
    assert shape.shape == (3 * SIZE, 2)


def test_one_rank_compiled_and_the_others_not():
    def reduce(x):
        return hvd.allreduce(x, op=hvd.Sum, name="mixed")

    function = jax.jit(reduce) if RANK == 0 else reduce
    assert np.allclose(function(jnp.ones(9)), SIZE)
