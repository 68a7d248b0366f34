# SPDX-License-Identifier: Apache-2.0
"""SyncBatchNorm on parts of a batch is BatchNorm on the whole batch, gradients included."""

import horovod.jax as hvd
import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
BATCH = jnp.asarray(np.random.RandomState(0).rand(4 * SIZE, 5, 3) * 3, jnp.float32)
MINE = BATCH[4 * RANK : 4 * RANK + 4]


def results(layer, batch, **options):
    variables = layer.init(jax.random.PRNGKey(0), batch)

    @jax.jit
    def run(params, batch):
        def loss(params, batch):
            inputs = {"params": params, "batch_stats": variables["batch_stats"]}
            output, new = layer.apply(inputs, batch, mutable=["batch_stats"])
            return jnp.sin(output).mean(), (output, new)

        gradient = jax.value_and_grad(loss, argnums=(0, 1), has_aux=True)
        return gradient(params, batch)

    return run(variables["params"], batch)


def test_equals_batch_norm_of_the_whole_batch():
    options = {"use_running_average": False, "momentum": 0.9}
    (_, (output, new)), (grads, by_input) = results(hvd.SyncBatchNorm(**options), MINE)
    (_, (whole, expected)), (whole_grads, whole_by_input) = results(nn.BatchNorm(**options), BATCH)
    assert np.allclose(output, whole[4 * RANK : 4 * RANK + 4], atol=1e-5)
    for name in ("mean", "var"):
        stats = new["batch_stats"][name]
        assert np.allclose(stats, expected["batch_stats"][name], atol=1e-5)
        assert all(np.array_equal(stats, s) for s in hvd.allgather_object(np.asarray(stats)))
    mean = hvd.allreduce(grads)
    for name in ("scale", "bias"):
        assert np.allclose(mean[name], whole_grads[name], atol=1e-5)
    # The loss of the whole batch is the mean of the ranks' losses.
    assert np.allclose(by_input / SIZE, whole_by_input[4 * RANK : 4 * RANK + 4], atol=1e-5)


def test_running_average_needs_no_other_rank():
    layer = hvd.SyncBatchNorm(use_running_average=True)
    variables = layer.init(jax.random.PRNGKey(0), MINE)
    if RANK == 0:
        assert np.allclose(layer.apply(variables, MINE), MINE, atol=1e-4)


def test_inside_a_model():
    class Model(nn.Module):
        @nn.compact
        def __call__(self, x):
            for _ in range(2):
                x = nn.relu(hvd.SyncBatchNorm(use_running_average=False)(nn.Dense(4)(x)))
            return x.sum()

    model = Model()
    variables = model.init(jax.random.PRNGKey(0), MINE)
    run = jax.jit(lambda v, x: model.apply(v, x, mutable=["batch_stats"]))
    _, new = run(variables, MINE)
    assert set(new["batch_stats"]) == {"SyncBatchNorm_0", "SyncBatchNorm_1"}
