# SPDX-License-Identifier: Apache-2.0
"""Horovod for NumPy arrays, as far as Keras on JAX needs it: the basics and some collectives."""

import cloudpickle
import numpy as np

from horovod.common import arrays
from horovod.common import process_sets as _process_sets
from horovod.common.basics import HorovodBasics as _HorovodBasics
from horovod.common.exceptions import HorovodInternalError
from horovod.common.library import native
from horovod.common.process_sets import (  # noqa: F401
    ProcessSet,
    add_process_set,
    global_process_set,
    remove_process_set,
)
from horovod.common.util import get_average_backwards_compatibility_fun

_basics = _HorovodBasics(__file__)
_process_sets._setup(_basics)
handle_average_backwards_compatibility = get_average_backwards_compatibility_fun(_basics)


def __getattr__(name):
    """init(), size(), Average and all else that HorovodBasics has."""
    return getattr(_basics, name)


class _Cast:
    """Floating-point arrays travel as another type; works on NumPy's and JAX' arrays."""

    wire = None

    @classmethod
    def compress(cls, array):
        is_floating = array.dtype.name in ("float16", "bfloat16", "float32", "float64")
        dtype = array.dtype
        return (array.astype(cls.wire), dtype) if cls.wire and is_floating else (array, dtype)

    @classmethod
    def decompress(cls, array, context):
        return array.astype(context)


class NoneCompressor(_Cast):
    pass


class FP16Compressor(_Cast):
    wire = "float16"


class BF16Compressor(_Cast):
    wire = "bfloat16"


class Compression:
    """What to pass as `compression=`."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor


def _run(function, *args, **kwargs):
    """Failures of a peer or of the job are what elastic training looks for."""
    try:
        return function(*args, **kwargs)
    except native.StatusError as error:
        raise HorovodInternalError(str(error)) from error


def grouped_allreduce(values, name, op, scales=arrays.NO_SCALES, process_set=global_process_set):
    set_id = process_set.process_set_id
    return _run(arrays.same_shape, native.ALLREDUCE, values, name, op, scales, 0, set_id)


def broadcast(value, root_rank, name):
    return _run(arrays.same_shape, native.BROADCAST, [value], name, root=root_rank)[0]


def allgather(value, name):
    return _run(arrays.by_rows, native.ALLGATHER, [value], name)[0][0]


def reducescatter(value, name, op):
    return _run(arrays.by_rows, native.REDUCESCATTER, [value], name, op)[0][0]


def broadcast_object(obj, root_rank=0, name=None):
    """A Python object of `root_rank`, on all ranks."""
    name = name or "broadcast_object"
    is_root = _basics.rank() == root_rank
    data = np.frombuffer(cloudpickle.dumps(obj) if is_root else b"", dtype=np.uint8)
    (count,) = broadcast(np.array([data.size], dtype=np.int64), root_rank, name + ".sz")
    data = data if is_root else np.zeros(count, dtype=np.uint8)
    received = broadcast(data, root_rank, name + ".t")
    return obj if is_root else cloudpickle.loads(received.tobytes())
