# SPDX-License-Identifier: Apache-2.0
"""Errors arrive on every rank, and the next call works."""

import horovod.numpy as hvd
import numpy as np
import pytest

with pytest.raises(hvd.HorovodInternalError, match="not been initialized"):
    hvd.allreduce(np.ones(1))

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
IS_LAST = RANK == SIZE - 1

DISAGREEMENTS = {
    "shape": (lambda: hvd.allreduce(np.ones(2 + IS_LAST)), "Mismatched ALLREDUCE tensor shapes"),
    "dtype": (
        lambda: hvd.allreduce(np.ones(2, ["float32", "float64"][IS_LAST])),
        "Mismatched data types",
    ),
    "operation": (
        lambda: hvd.allreduce(np.ones(2), op=[hvd.Sum, hvd.Max][IS_LAST]),
        "Mismatched reduction operation",
    ),
    "root": (lambda: hvd.broadcast(np.ones(2), int(IS_LAST)), "Mismatched BROADCAST root ranks"),
    "rows": (lambda: hvd.allgather(np.ones((2, 2 + IS_LAST))), "Mismatched ALLGATHER"),
    "group": (
        lambda: hvd.grouped_allreduce([np.ones(2 + IS_LAST), np.ones(2)]),
        "Mismatched ALLREDUCE tensor shapes",
    ),
}


def assert_works():
    assert (hvd.allreduce(np.ones(3), op=hvd.Sum) == SIZE).all()


@pytest.mark.parametrize("kind", DISAGREEMENTS)
def test_disagreement(kind):
    function, message = DISAGREEMENTS[kind]
    with pytest.raises(hvd.HorovodInternalError, match=message):
        function()
    assert_works()


BAD = {
    "splits": (lambda: hvd.alltoall(np.ones(4), [9] * SIZE), "greater than the first dimension"),
    "splits count": (lambda: hvd.alltoall(np.ones(4), [1] * (SIZE + 1)), "does not equal number"),
    "splits dims": (lambda: hvd.alltoall(np.ones(4), [[1, 1]]), "1D splits"),
    "splits type": (lambda: hvd.alltoall(np.ones(4), [0.5, 0.5]), "integer"),
    "root": (lambda: hvd.broadcast(np.ones(4), SIZE), "invalid root rank"),
    "text": (lambda: hvd.allreduce(np.array(["a"])), "does not move arrays of type"),
    "objects": (lambda: hvd.allreduce([1, "a", None]), "does not move arrays of type object"),
    "complex": (lambda: hvd.allreduce(np.ones(2, "complex64")), "does not move arrays"),
    "uint64": (lambda: hvd.allgather(np.ones(2, "uint64")), "does not move arrays of type uint64"),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_arguments(kind):
    function, message = BAD[kind]
    with pytest.raises(ValueError, match=message):
        function()
    assert_works()


def test_one_name_twice():
    handles = []
    if RANK == 0:
        handles.append(hvd.allreduce_async(np.ones(2), "twice", hvd.Sum))
        with pytest.raises(ValueError, match="same name"):
            hvd.allreduce_async(np.ones(2), "twice", hvd.Sum)
    hvd.broadcast_object("the name was taken", root_rank=0)
    if RANK != 0:
        handles.append(hvd.allreduce_async(np.ones(2), "twice", hvd.Sum))
    assert (hvd.synchronize(handles[0]) == SIZE).all()


def test_after_shutdown():
    hvd.shutdown()
    with pytest.raises(hvd.HorovodInternalError):
        hvd.allreduce(np.ones(1))
    hvd.init()
    assert_works()
