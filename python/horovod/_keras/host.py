# SPDX-License-Identifier: Apache-2.0
"""Horovod for NumPy arrays, as far as Keras on JAX needs it: the basics and some collectives."""

from horovod.common import objects
from horovod.common.array_compression import Compression  # noqa: F401
from horovod.common.arrays import NO_SCALES, Arrays
from horovod.common.library import native
from horovod.common.names import *  # noqa: F403
from horovod.common.names import global_process_set

_arrays = Arrays()  # failures of a peer or of the job are what elastic training looks for


def grouped_allreduce(values, name, op, scales=NO_SCALES, process_set=global_process_set, wire=0):
    """wire: the native flag of the type in which float32 travels; 0: its own."""
    set_id = process_set.process_set_id
    return _arrays.same_shape(native.ALLREDUCE, values, name, op, scales, 0, set_id, wire)


def broadcast(value, root_rank, name):
    return _arrays.same_shape(native.BROADCAST, [value], name, root=root_rank)[0]


def allgather(value, name):
    return _arrays.by_rows(native.ALLGATHER, [value], name)[0][0]


def reducescatter(value, name, op):
    return _arrays.by_rows(native.REDUCESCATTER, [value], name, op)[0][0]


def broadcast_object(obj, root_rank=0, name=None):
    """A Python object of `root_rank`, on all ranks."""
    return objects.broadcast_object(_arrays, obj, root_rank, name)
