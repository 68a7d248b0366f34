# SPDX-License-Identifier: Apache-2.0
"""Programs that run on several devices of one process are refused with a clear error."""

import functools
import os

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"

import horovod.jax as hvd  # noqa: E402
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import pytest  # noqa: E402
from jax.sharding import Mesh, NamedSharding, PartitionSpec  # noqa: E402

hvd.init()
SIZE = hvd.size()
TEXT = "runs on 2 devices of one process"


def mesh():
    return Mesh(np.array(jax.devices()), ("d",))


def test_pmap():
    with pytest.raises(NotImplementedError, match=TEXT):
        jax.pmap(lambda x: hvd.allreduce(x))(jnp.ones((2, 3)))


def test_shard_map():
    shard_map = getattr(jax, "shard_map", None)
    if shard_map is None:
        from jax.experimental import shard_map as module

        shard_map = functools.partial(module.shard_map, check_rep=False)
    spec = PartitionSpec("d")
    function = shard_map(lambda x: hvd.allreduce(x), mesh=mesh(), in_specs=spec, out_specs=spec)
    with pytest.raises(NotImplementedError, match=TEXT):
        jax.jit(function)(jnp.ones((2, 3)))


def test_sharded_jit():
    array = jax.device_put(jnp.ones((2, 3)), NamedSharding(mesh(), PartitionSpec("d")))
    with pytest.raises(NotImplementedError, match=TEXT):
        jax.jit(lambda x: hvd.allreduce(x))(array)
    assert np.allclose(hvd.allreduce(array, op=hvd.Sum), SIZE)


def test_one_of_the_devices():
    assert np.allclose(jax.jit(lambda x: hvd.allreduce(x, op=hvd.Sum))(jnp.ones(3)), SIZE)
