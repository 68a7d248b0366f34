# SPDX-License-Identifier: Apache-2.0
"""Collective operations on tensors, their gradients, and questions about the job."""

import re

import tensorflow as tf

from horovod.common import process_sets as _process_sets
from horovod.common.basics import HorovodBasics as _HorovodBasics
from horovod.common.process_sets import _temp_process_set_object, global_process_set
from horovod.common.util import get_average_backwards_compatibility_fun
from horovod.tensorflow import library, xla_ops
from horovod.tensorflow.util import _executing_eagerly, tf_variable

_basics = _HorovodBasics(__file__)
_process_sets._setup(_basics)

init = _basics.init
shutdown = _basics.shutdown
is_initialized = _basics.is_initialized
start_timeline = _basics.start_timeline
stop_timeline = _basics.stop_timeline
size = _basics.size
local_size = _basics.local_size
cross_size = _basics.cross_size
rank = _basics.rank
local_rank = _basics.local_rank
cross_rank = _basics.cross_rank
is_homogeneous = _basics.is_homogeneous
mpi_threads_supported = _basics.mpi_threads_supported
mpi_enabled = _basics.mpi_enabled
mpi_built = _basics.mpi_built
gloo_enabled = _basics.gloo_enabled
gloo_built = _basics.gloo_built
nccl_built = _basics.nccl_built
ddl_built = _basics.ddl_built
ccl_built = _basics.ccl_built
cuda_built = _basics.cuda_built
rocm_built = _basics.rocm_built

Average = _basics.Average
Sum = _basics.Sum
Adasum = _basics.Adasum
Min = _basics.Min
Max = _basics.Max
Product = _basics.Product

handle_average_backwards_compatibility = get_average_backwards_compatibility_fun(_basics)


def check_num_rank_power_of_2(num_rank):
    return num_rank != 0 and (num_rank & (num_rank - 1)) == 0


def _load_library(name=None):
    return library.load()[0]


MPI_LIB, _IS_NATIVE = library.load()


def _check_has_gpu():
    return bool(tf.config.list_physical_devices("GPU"))


# ---- names ----


def _normalize_name(name):
    """Only letters, digits and underscores, as names of graph nodes want it."""
    return re.sub("[^a-zA-Z0-9_]", "_", name)


def _tensor_name(tensor):
    # Captured eager tensors, arrays and lists have no name; the graph makes "tensor" unique.
    try:
        return tensor.name or "tensor"
    except AttributeError:
        return "tensor"


def _default_name(name, kind, *tensors):
    if name is not None or _executing_eagerly():
        return name
    return _normalize_name("_".join(["Horovod" + kind, *map(_tensor_name, tensors)]))


def _set_id(process_set):
    process_set_id = process_set.process_set_id
    if process_set_id is None:
        raise ValueError(
            "The process set has not been registered: pass it to hvd.init(process_sets=...) or to "
            f"hvd.add_process_set() first. {process_set}"
        )
    return process_set_id


# ---- types that have no collective of their own travel as their bytes ----

_SAME_BYTES = {tf.uint32: tf.int32, tf.uint64: tf.int64, tf.complex64: tf.int64}


def _as_bytes(tensor):
    """(tensor of a type that can be moved, function that undoes it)"""
    tensor = tf.convert_to_tensor(tf_variable(tensor))
    wire = _SAME_BYTES.get(tensor.dtype)
    if wire is None:
        return tensor, lambda result: result
    return tf.bitcast(tensor, wire), lambda result: tf.bitcast(result, tensor.dtype)


# ---- collectives ----


def _allreduce(
    tensor,
    name=None,
    op=Sum,
    prescale_factor=1.0,
    postscale_factor=1.0,
    ignore_name_scope=False,
    process_set=global_process_set,
):
    name = _default_name(name, "Allreduce", tensor)
    tensor = tf_variable(tensor)
    if xla_ops.is_compiling():
        return xla_ops.grouped_allreduce(
            [tensor], name, op, prescale_factor, postscale_factor, _set_id(process_set)
        )[0]
    return MPI_LIB.horovod_allreduce(
        tensor,
        name=name,
        reduce_op=op,
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
        ignore_name_scope=ignore_name_scope,
        process_set_id=_set_id(process_set),
    )


def _grouped_allreduce(
    tensors,
    name=None,
    op=Sum,
    prescale_factor=1.0,
    postscale_factor=1.0,
    ignore_name_scope=False,
    process_set=global_process_set,
):
    name = _default_name(name, "GroupedAllreduce", tensors[0], tensors[-1])
    if xla_ops.is_compiling():
        return xla_ops.grouped_allreduce(
            tensors, name, op, prescale_factor, postscale_factor, _set_id(process_set)
        )
    return MPI_LIB.horovod_grouped_allreduce(
        [tf_variable(tensor) for tensor in tensors],
        name=name,
        reduce_op=op,
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
        ignore_name_scope=ignore_name_scope,
        process_set_id=_set_id(process_set),
    )


def allgather(tensor, name=None, ignore_name_scope=False, process_set=global_process_set):
    """Concatenates the tensors of all ranks along the first dimension, which may differ."""
    xla_ops.refuse_if_compiling("allgather")
    name = _default_name(name, "Allgather", tensor)
    tensor, restore = _as_bytes(tensor)
    return restore(
        MPI_LIB.horovod_allgather(
            tensor,
            name=name,
            ignore_name_scope=ignore_name_scope,
            process_set_id=_set_id(process_set),
        )
    )


def grouped_allgather(tensors, name=None, ignore_name_scope=False, process_set=global_process_set):
    """allgather() of several tensors at once; all or none of them are executed."""
    xla_ops.refuse_if_compiling("grouped_allgather")
    if tensors:
        name = _default_name(name, "GroupedAllgather", tensors[0], tensors[-1])
    return MPI_LIB.horovod_grouped_allgather(
        [tf_variable(tensor) for tensor in tensors],
        name=name,
        ignore_name_scope=ignore_name_scope,
        process_set_id=_set_id(process_set),
    )


def broadcast(
    tensor, root_rank, name=None, ignore_name_scope=False, process_set=global_process_set
):
    """The tensor of the rank `root_rank` (a global rank), on all ranks."""
    name = _default_name(name, "Broadcast", tensor)
    tensor, restore = _as_bytes(tensor)
    if xla_ops.is_compiling():
        return restore(xla_ops.broadcast(tensor, root_rank, name, _set_id(process_set)))
    return restore(
        MPI_LIB.horovod_broadcast(
            tensor,
            name=name,
            root_rank=root_rank,
            ignore_name_scope=ignore_name_scope,
            process_set_id=_set_id(process_set),
        )
    )


def _is_resource(variable):
    return not hasattr(variable, "_ref") or hasattr(variable, "handle")


def broadcast_(variables, root_rank, name=None, process_set=global_process_set):
    """Sets variables to their values on `root_rank`; returns those values."""
    variables = [tf_variable(variable) for variable in variables]
    kinds = {_is_resource(variable) for variable in variables}
    if len(kinds) > 1:
        raise ValueError(
            "All variables passed to broadcast_() should be of the same kind, resource or reference"
        )
    values = []
    for number, variable in enumerate(variables):
        own_name = name if name is None or number == 0 else f"{name}_{number}"
        received = broadcast(variable, root_rank, name=own_name, process_set=process_set)
        assigned = variable.assign(received)
        with tf.control_dependencies([assigned] if not _executing_eagerly() else None):
            values.append(variable.read_value())
    return values


def alltoall(
    tensor, splits=None, name=None, ignore_name_scope=False, process_set=global_process_set
):
    """Sends slices of the first dimension to all ranks and concatenates what they send.

    splits: how many rows go to each rank; None sends equal parts. With splits the result is
    (output, received_splits).
    """
    xla_ops.refuse_if_compiling("alltoall")
    name = _default_name(name, "Alltoall", tensor)
    has_splits = splits is not None
    splits = tf.convert_to_tensor(splits if has_splits else tf.constant([], dtype=tf.int32))
    tensor, restore = _as_bytes(tensor)
    output, received = MPI_LIB.horovod_alltoall(
        tensor,
        splits=splits,
        name=name,
        ignore_name_scope=ignore_name_scope,
        process_set_id=_set_id(process_set),
    )
    return (restore(output), received) if has_splits else restore(output)


def _reducescatter(
    tensor,
    name=None,
    op=Sum,
    ignore_name_scope=False,
    process_set=global_process_set,
    prescale_factor=1.0,
    postscale_factor=1.0,
):
    xla_ops.refuse_if_compiling("reducescatter")
    return MPI_LIB.horovod_reducescatter(
        tf_variable(tensor),
        name=_default_name(name, "Reducescatter", tensor),
        reduce_op=op,
        ignore_name_scope=ignore_name_scope,
        process_set_id=_set_id(process_set),
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
    )


def _grouped_reducescatter(
    tensors,
    name=None,
    op=Sum,
    ignore_name_scope=False,
    process_set=global_process_set,
    prescale_factor=1.0,
    postscale_factor=1.0,
):
    xla_ops.refuse_if_compiling("grouped_reducescatter")
    return MPI_LIB.horovod_grouped_reducescatter(
        [tf_variable(tensor) for tensor in tensors],
        name=_default_name(name, "GroupedReducescatter", tensors[0], tensors[-1]),
        reduce_op=op,
        ignore_name_scope=ignore_name_scope,
        process_set_id=_set_id(process_set),
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
    )


def join():
    """Tells that this rank has no more data; returns, when all have, the one that was last."""
    xla_ops.refuse_if_compiling("join")
    return MPI_LIB.horovod_join()


def barrier(process_set=global_process_set):
    """Returns when every rank of the set is here."""
    xla_ops.refuse_if_compiling("barrier")
    return MPI_LIB.horovod_barrier(process_set_id=_set_id(process_set))


# ---- questions, answered when the graph runs ----


def size_op(process_set_id=0, name=None):
    return MPI_LIB.horovod_size(process_set_id=process_set_id, name=name)


def process_set_included_op(process_set_id=0, name=None):
    return MPI_LIB.horovod_process_set_included(process_set_id=process_set_id, name=name)


def local_size_op(name=None):
    return MPI_LIB.horovod_local_size(name=name)


def rank_op(name=None):
    return MPI_LIB.horovod_rank(name=name)


def local_rank_op(name=None):
    return MPI_LIB.horovod_local_rank(name=name)


# ---- gradients ----


class _Attributes:
    """The attributes of an op that its gradient needs."""

    def __init__(self, op):
        self._op = op

    def __getattr__(self, name):
        return self._op.get_attr(name)

    @property
    def process_set(self):
        return _temp_process_set_object(self._op.get_attr("process_set_id"))

    def reduction(self):
        return {
            "op": self.reduce_op,
            "prescale_factor": self.prescale_factor,
            "postscale_factor": self.postscale_factor,
            "ignore_name_scope": self.ignore_name_scope,
            "process_set": self.process_set,
        }


def _allreduce_grad(op, grad):
    return _allreduce(grad, **_Attributes(op).reduction())


def _grouped_allreduce_grad(op, *grads):
    return _grouped_allreduce(list(grads), **_Attributes(op).reduction())


def _own_rows(grad, tensor, process_set, ignore_name_scope):
    """This rank's part of the mean gradient of a concatenation."""
    grad = _allreduce(
        grad, op=Average, ignore_name_scope=ignore_name_scope, process_set=process_set
    )
    with tf.device("/cpu:0"):
        rows = tf.reshape(tf.shape(tensor)[0], [1])
        splits = tf.reshape(
            allgather(rows, ignore_name_scope=ignore_name_scope, process_set=process_set), [-1]
        )
    parts = tf.split(grad, num_or_size_splits=splits, num=process_set.size(), axis=0)
    return parts[process_set.rank()]


def _allgather_grad(op, grad):
    attributes = _Attributes(op)
    return _own_rows(grad, op.inputs[0], attributes.process_set, attributes.ignore_name_scope)


def _grouped_allgather_grad(op, *grads):
    # One by one: the gradients may have types that differ.
    attributes = _Attributes(op)
    return [
        _own_rows(grad, tensor, attributes.process_set, attributes.ignore_name_scope)
        for grad, tensor in zip(grads, op.inputs, strict=True)
    ]


def _broadcast_grad(op, grad):
    attributes = _Attributes(op)
    reduced = _allreduce(
        grad,
        op=Average,
        ignore_name_scope=attributes.ignore_name_scope,
        process_set=attributes.process_set,
    )
    return reduced if rank() == attributes.root_rank else reduced * 0


def _alltoall_grad(op, grad_output, grad_received_splits):
    attributes = _Attributes(op)
    grad, _ = alltoall(
        grad_output,
        splits=op.outputs[1],
        ignore_name_scope=attributes.ignore_name_scope,
        process_set=attributes.process_set,
    )
    return [grad, None]


def _scattered_grad(attributes, grad):
    process_set = attributes.process_set
    if attributes.reduce_op == Sum:
        grad *= tf.cast(process_set.size(), grad.dtype)
    for factor in (attributes.prescale_factor, attributes.postscale_factor):
        if factor != 1.0:
            grad *= tf.cast(factor, grad.dtype)
    return allgather(grad, process_set=process_set, ignore_name_scope=attributes.ignore_name_scope)


def _reducescatter_grad(op, grad):
    return _scattered_grad(_Attributes(op), grad)


def _grouped_reducescatter_grad(op, *grads):
    return [_scattered_grad(_Attributes(op), grad) for grad in grads]


GRADIENTS = {
    "HorovodAllreduce": _allreduce_grad,
    "HorovodGroupedAllreduce": _grouped_allreduce_grad,
    "HorovodAllgather": _allgather_grad,
    "HorovodGroupedAllgather": _grouped_allgather_grad,
    "HorovodBroadcast": _broadcast_grad,
    "HorovodAlltoall": _alltoall_grad,
    "HorovodReducescatter": _reducescatter_grad,
    "HorovodGroupedReducescatter": _grouped_reducescatter_grad,
}

if _IS_NATIVE:
    for _name, _function in GRADIENTS.items():
        tf.RegisterGradient(_name)(_function)
    for _name in library.QUESTIONS:
        tf.no_gradient(_name)
