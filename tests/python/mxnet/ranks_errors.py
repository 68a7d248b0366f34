# SPDX-License-Identifier: Apache-2.0
"""Errors arrive as MXNetError where a result is waited for, on every rank; the next op works."""

import json
import time

import horovod.mxnet as hvd
import mxnet as mx
import numpy as np
import pytest
from mxnet.base import MXNetError

with pytest.raises(MXNetError, match="has not been initialized; use hvd.init"):
    hvd.allreduce(mx.nd.ones(1)).wait_to_read()
with pytest.raises(MXNetError, match="has not been initialized"):
    hvd.allgather(mx.nd.ones(1))

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()

DISAGREEMENTS = {
    "shape": (lambda: hvd.allreduce(mx.nd.ones(2 + RANK)), "Mismatched ALLREDUCE tensor shapes"),
    "dtype": (
        lambda: hvd.allreduce(mx.nd.ones(2, dtype=["float32", "float64"][RANK])),
        "Mismatched data types",
    ),
    "operation": (
        lambda: hvd.allreduce(mx.nd.ones(2), op=[hvd.Sum, hvd.Max][RANK]),
        "Mismatched reduction operation",
    ),
    "scale": (
        lambda: hvd.allreduce(mx.nd.ones(2), op=hvd.Sum, prescale_factor=1.0 + RANK),
        "Mismatched prescale",
    ),
    "root": (lambda: hvd.broadcast(mx.nd.ones(2), RANK), "Mismatched BROADCAST root ranks"),
    "rows": (lambda: hvd.allgather(mx.nd.ones((2, 2 + RANK))), "Mismatched ALLGATHER"),
    "group": (
        lambda: hvd.grouped_allreduce([mx.nd.ones(2 + RANK), mx.nd.ones(2)])[1],
        "Mismatched ALLREDUCE tensor shapes",
    ),
}


def assert_works():
    assert (hvd.allreduce(mx.nd.ones(3), op=hvd.Sum).asnumpy() == SIZE).all()
    assert hvd.allgather(mx.nd.ones(3)).shape == (3 * SIZE,)


@pytest.mark.parametrize("kind", DISAGREEMENTS)
def test_disagreement(kind):
    function, message = DISAGREEMENTS[kind]
    with pytest.raises(MXNetError, match=message):
        function().wait_to_read()
    mx.nd.waitall()
    assert_works()


def test_errors_reach_what_depends_on_the_result():
    tensor = mx.nd.ones(2 + RANK)
    own = mx.nd.ones(2)
    result = hvd.allreduce(tensor, name="depends") * 2 + 1
    with pytest.raises(MXNetError, match="Mismatched"):
        result.asnumpy()
    assert (tensor.asnumpy() == 1).all(), "the input of an out-of-place form is not touched"
    assert (own.asnumpy() == 1).all()
    assert_works()


BAD = {
    "splits": (lambda: hvd.alltoall(mx.nd.ones(4), [9] * SIZE), "greater than the first dimension"),
    "splits count": (
        lambda: hvd.alltoall(mx.nd.ones(4), [1] * (SIZE + 1)),
        "does not equal number of workers",
    ),
    "splits dims": (lambda: hvd.alltoall(mx.nd.ones(4), mx.nd.ones((2, 2))), "1D splits"),
    "root": (lambda: hvd.broadcast(mx.nd.ones(4), SIZE).wait_to_read(), "invalid root rank"),
    "name": (
        lambda: hvd.allreduce(mx.nd.ones(4), name="n" * 2000).wait_to_read(),
        "name",
    ),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_arguments(kind):
    function, message = BAD[kind]
    with pytest.raises(MXNetError, match=message):
        function()
    mx.nd.waitall()
    assert_works()


def test_sparse_arrays_are_refused():
    sparse = mx.nd.ones((3, 2)).tostype("row_sparse")
    with pytest.raises(MXNetError, match=r"dense arrays only.*tostype"):
        hvd.allreduce_(sparse, name="sparse")
    with pytest.raises(MXNetError, match="dense arrays"):
        hvd.allgather(sparse)
    assert_works()


def test_unsupported_type():
    tensor = mx.nd.empty((4,), dtype=np.dtype([("bfloat16", np.uint16)]))
    with pytest.raises(MXNetError, match="not supported in MPI mode"):
        hvd.allreduce_(tensor, name="bfloat16")
    assert_works()


def test_two_arrays_under_one_name():
    """Which of the two meets which on another rank is open, so both fail, and later ones work."""
    first, second = mx.nd.ones(4), mx.nd.ones(4)
    if RANK == 0:
        hvd.allreduce_(first, name="twice")
        while "horovod_allreduce.twice" not in json.dumps(hvd.snapshot()):
            time.sleep(0.01)
        hvd.allreduce_(second, name="twice")
        with pytest.raises(MXNetError, match="same name"):
            second.wait_to_read()
    hvd.broadcast_object("both were used", root_rank=0)
    if RANK == 0:
        with pytest.raises(MXNetError, match="same name.*both calls fail"):
            first.wait_to_read()
    else:
        assert (hvd.allreduce(first, name="twice").asnumpy() == 1).all()
    assert_works()


def test_error_does_not_cross_to_other_arrays():
    good = mx.nd.full((3,), RANK + 1.0)
    bad = mx.nd.ones(2 + RANK)
    hvd.allreduce_(bad, name="bad")
    hvd.allreduce_(good, name="good", op=hvd.Sum)
    assert (good.asnumpy() == SIZE * (SIZE + 1) / 2).all()
    with pytest.raises(MXNetError, match="Mismatched"):
        bad.asnumpy()
    np.testing.assert_array_equal(mx.nd.ones(2).asnumpy(), [1, 1])
    assert_works()


def test_after_shutdown():
    hvd.shutdown()
    with pytest.raises(MXNetError, match="Horovod has (not been initialized|been shut down)"):
        hvd.allreduce(mx.nd.ones(1), name="after").wait_to_read()
    hvd.init()
    assert_works()
