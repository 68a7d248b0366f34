# SPDX-License-Identifier: Apache-2.0
"""Batch normalisation over the batches of all ranks, for Flax (linen)."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from horovod.common.names import Average, global_process_set
from horovod.common.process_sets import ProcessSet
from horovod.jax.mpi_ops import allreduce


def global_moments(
    inputs: Any, axes: tuple[int, ...], name: str | None, process_set: ProcessSet
) -> tuple[Any, Any]:
    """Mean and variance over some axes and over all ranks; every rank counts the same."""
    values = inputs.astype(jnp.promote_types(inputs.dtype, jnp.float32))
    moments = jnp.stack([values.mean(axes), jnp.square(values).mean(axes)])
    mean, squares = allreduce(moments, op=Average, name=name, process_set=process_set)
    return mean, jnp.maximum(squares - jnp.square(mean), 0)


class SyncBatchNorm(nn.Module):
    """flax.linen.BatchNorm with mean and variance over the batches of all ranks.

    It matters where each rank's batch is small. All ranks must run it equally often. Statistics are
    in the collection "batch_stats", under the names that BatchNorm uses.
    """

    use_running_average: bool | None = None
    axis: int = -1
    momentum: float = 0.99
    epsilon: float = 1e-5
    use_bias: bool = True
    use_scale: bool = True
    bias_init: Callable = nn.initializers.zeros
    scale_init: Callable = nn.initializers.ones
    process_set: ProcessSet = global_process_set

    @nn.compact
    def __call__(self, inputs: Any, use_running_average: bool | None = None) -> Any:
        """Normalise a batch; while training, with the statistics of all ranks."""
        is_frozen = nn.merge_param(
            "use_running_average", self.use_running_average, use_running_average
        )
        axis = self.axis % inputs.ndim
        axes = tuple(i for i in range(inputs.ndim) if i != axis)
        features = inputs.shape[axis]
        shape = [features if i == axis else 1 for i in range(inputs.ndim)]
        stored_mean = self.variable("batch_stats", "mean", jnp.zeros, (features,), jnp.float32)
        stored_var = self.variable("batch_stats", "var", jnp.ones, (features,), jnp.float32)
        if is_frozen:
            mean, variance = stored_mean.value, stored_var.value
        elif self.is_initializing():
            mean, variance = jnp.zeros(features), jnp.ones(features)
        else:
            name = "sync_batch_norm." + "/".join(self.path)
            mean, variance = global_moments(inputs, axes, name, self.process_set)
            decay = self.momentum
            stored_mean.value = decay * stored_mean.value + (1 - decay) * mean
            stored_var.value = decay * stored_var.value + (1 - decay) * variance
        scale = jax.lax.rsqrt(variance + self.epsilon)
        if self.use_scale:
            scale = scale * self.param("scale", self.scale_init, (features,), jnp.float32)
        result = (inputs - mean.reshape(shape)) * scale.reshape(shape)
        if self.use_bias:
            bias = self.param("bias", self.bias_init, (features,), jnp.float32)
            result = result + bias.reshape(shape)
        return result.astype(inputs.dtype)
