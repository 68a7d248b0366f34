# SPDX-License-Identifier: Apache-2.0
"""One rank of a job of several frameworks; rank i uses the i-th of the arguments.

Every framework has the same few functions here, which take and give NumPy arrays, and all ranks
make the same calls.
"""

import sys

import numpy as np


def use_numpy():
    import horovod.numpy as hvd

    return hvd, np.asarray, np.asarray, hvd.HorovodInternalError


def use_torch():
    import horovod.torch as hvd
    import torch
    from horovod.common.exceptions import HorovodInternalError

    return hvd, lambda v: torch.from_numpy(np.array(v)), lambda t: t.numpy(), HorovodInternalError


def use_tensorflow():
    import horovod.tensorflow as hvd
    import tensorflow as tf

    return hvd, tf.constant, lambda t: t.numpy(), tf.errors.FailedPreconditionError


def use_mxnet():
    import horovod.mxnet as hvd
    import mxnet as mx

    def wrap(values):
        return mx.nd.array(values, dtype=values.dtype)

    return hvd, wrap, lambda t: t.asnumpy(), mx.base.MXNetError


def use_jax():
    import horovod.jax as hvd
    import jax
    from horovod.common.exceptions import HorovodInternalError

    jax.config.update("jax_enable_x64", True)
    return hvd, jax.numpy.asarray, np.asarray, HorovodInternalError


FRAMEWORKS = {
    "numpy": use_numpy,
    "torch": use_torch,
    "tensorflow": use_tensorflow,
    "mxnet": use_mxnet,
    "jax": use_jax,
}


def check_values(hvd, wrap, unwrap, rank, size):
    for dtype in ("float32", "float64", "float16", "int32", "int64", "uint8"):
        mine = np.arange(6).reshape(2, 3).astype(dtype) + np.array(rank, dtype)
        total = sum(np.arange(6).reshape(2, 3) + r for r in range(size)).astype(dtype)
        reduced = hvd.allreduce(wrap(mine), name=f"/sum.{dtype}", op=hvd.Sum)
        assert np.array_equal(unwrap(reduced), total), dtype
        received = hvd.broadcast(wrap(mine), size - 1, name=f"/root.{dtype}")
        assert np.array_equal(unwrap(received), np.arange(6).reshape(2, 3) + size - 1)
        rows = hvd.allgather(wrap(mine[: 1 + rank % 2]), name=f"/rows.{dtype}")
        assert unwrap(rows).shape == (sum(1 + r % 2 for r in range(size)), 3)
    group = [wrap(np.full(3, float(rank))), wrap(np.full((2, 2), float(rank)))]
    for member in hvd.grouped_allreduce(group, name="/group"):
        assert np.allclose(unwrap(member), (size - 1) / 2)
    share = hvd.reducescatter(wrap(np.ones(2 * size)), op=hvd.Sum, name="/shares")
    assert unwrap(share).tolist() == [size, size]
    parts = hvd.alltoall(wrap(np.arange(size) + 10.0 * rank), name="/parts")
    assert unwrap(parts).tolist() == [rank + 10.0 * r for r in range(size)]


def check_order(hvd, wrap, unwrap, rank, size):
    """Steps of one name, and different speeds."""
    value = np.full(4, float(rank))
    for step in range(30):
        value = unwrap(hvd.allreduce(wrap(value + rank * step), name="/step"))
        assert np.allclose(value, value[0])


def check_errors(hvd, wrap, unwrap, error_class, rank, size):
    """Each framework has its own exception; the job goes on."""
    try:
        unwrap(hvd.allreduce(wrap(np.ones(2 + (rank == size - 1))), name="/differs"))
    except error_class as error:
        assert "Mismatched ALLREDUCE tensor shapes" in str(error), error
    else:
        raise AssertionError("no error")
    reduced = hvd.allreduce(wrap(np.ones(2)), name="/differs", op=hvd.Sum)
    assert unwrap(reduced).tolist() == [size, size]


def check_objects(hvd, framework, rank, size):
    assert hvd.broadcast_object({"from": rank}, root_rank=size - 1, name="/object") == {
        "from": size - 1
    }
    everyone = hvd.allgather_object(framework, name="/frameworks")
    assert everyone == sys.argv[1:], everyone


def main():
    import os

    framework = sys.argv[1 + int(os.environ["HOROVOD_RANK"])]
    hvd, wrap, unwrap, error_class = FRAMEWORKS[framework]()
    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    check_values(hvd, wrap, unwrap, rank, size)
    check_order(hvd, wrap, unwrap, rank, size)
    check_errors(hvd, wrap, unwrap, error_class, rank, size)
    check_objects(hvd, framework, rank, size)
    print(f"{framework} has met the others", flush=True)


main()
