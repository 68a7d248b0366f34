# SPDX-License-Identifier: Apache-2.0
"""Collective operations on tensors, their gradients, and questions about the job."""

import re
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from horovod.common.basics import HorovodBasics as _HorovodBasics  # noqa: F401 - scripts look at it
from horovod.common.handles import set_id as _set_id
from horovod.common.names import *  # noqa: F403
from horovod.common.names import Average, Sum, global_process_set, rank
from horovod.common.names import basics as _basics  # noqa: F401
from horovod.common.process_sets import ProcessSet, _temp_process_set_object
from horovod.common.util import num_rank_is_power_2 as check_num_rank_power_of_2  # noqa: F401
from horovod.tensorflow import library, threads, xla_ops
from horovod.tensorflow.util import TensorLike, _executing_eagerly, tf_variable


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
    if name is not None:
        return name.removeprefix("/")  # one that all frameworks share: handles.op_name()
    if _executing_eagerly():
        role = threads.role()
        return f"Horovod{kind}.{role}" if role else None
    return _normalize_name("_".join(["Horovod" + kind, *map(_tensor_name, tensors)]))


def _run(op, *inputs, name, **attributes):
    """Calls an op of the library. An eager call without a name has that of its op."""
    if name is None or not _executing_eagerly():
        return op(*inputs, name=name, **attributes)
    with library.eager_name(name):
        return op(*inputs, name=name, **attributes)


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
    wire=0,
):
    name = _default_name(name, "Allreduce", tensor)
    tensor = tf_variable(tensor)
    if xla_ops.is_compiling():
        return xla_ops.grouped_allreduce(
            [tensor], name, op, prescale_factor, postscale_factor, _set_id(process_set), wire
        )[0]
    return _run(
        MPI_LIB.horovod_allreduce,
        tensor,
        name=name,
        reduce_op=op,
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
        ignore_name_scope=ignore_name_scope,
        process_set_id=_set_id(process_set),
        wire=wire,
    )


def _grouped_allreduce(
    tensors,
    name=None,
    op=Sum,
    prescale_factor=1.0,
    postscale_factor=1.0,
    ignore_name_scope=False,
    process_set=global_process_set,
    wire=0,
):
    name = _default_name(name, "GroupedAllreduce", tensors[0], tensors[-1])
    if xla_ops.is_compiling():
        return xla_ops.grouped_allreduce(
            tensors, name, op, prescale_factor, postscale_factor, _set_id(process_set), wire
        )
    return _run(
        MPI_LIB.horovod_grouped_allreduce,
        [tf_variable(tensor) for tensor in tensors],
        name=name,
        reduce_op=op,
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
        ignore_name_scope=ignore_name_scope,
        process_set_id=_set_id(process_set),
        wire=wire,
    )


def allgather(
    tensor: TensorLike,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Concatenates the tensors of all ranks along the first dimension, which may differ."""
    xla_ops.refuse_if_compiling("allgather")
    name = _default_name(name, "Allgather", tensor)
    tensor, restore = _as_bytes(tensor)
    return restore(
        _run(
            MPI_LIB.horovod_allgather,
            tensor,
            name=name,
            ignore_name_scope=ignore_name_scope,
            process_set_id=_set_id(process_set),
        )
    )


def grouped_allgather(
    tensors: Sequence[TensorLike],
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> list:
    """allgather() of several tensors at once; all or none of them are executed."""
    xla_ops.refuse_if_compiling("grouped_allgather")
    if tensors:
        name = _default_name(name, "GroupedAllgather", tensors[0], tensors[-1])
    return _run(
        MPI_LIB.horovod_grouped_allgather,
        [tf_variable(tensor) for tensor in tensors],
        name=name,
        ignore_name_scope=ignore_name_scope,
        process_set_id=_set_id(process_set),
    )


def broadcast(
    tensor: TensorLike,
    root_rank: int,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """The tensor of the rank `root_rank` (a global rank), on all ranks."""
    name = _default_name(name, "Broadcast", tensor)
    tensor, restore = _as_bytes(tensor)
    if xla_ops.is_compiling():
        return restore(xla_ops.broadcast(tensor, root_rank, name, _set_id(process_set)))
    return restore(
        _run(
            MPI_LIB.horovod_broadcast,
            tensor,
            name=name,
            root_rank=root_rank,
            ignore_name_scope=ignore_name_scope,
            process_set_id=_set_id(process_set),
        )
    )


def _is_resource(variable):
    return not hasattr(variable, "_ref") or hasattr(variable, "handle")


def broadcast_(
    variables: Sequence,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> list:
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
    tensor: TensorLike,
    splits: TensorLike | None = None,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Sends slices of the first dimension to all ranks and concatenates what they send.

    splits: how many rows go to each rank; None sends equal parts. With splits the result is
    (output, received_splits).
    """
    xla_ops.refuse_if_compiling("alltoall")
    name = _default_name(name, "Alltoall", tensor)
    has_splits = splits is not None
    splits = tf.convert_to_tensor(splits if has_splits else tf.constant([], dtype=tf.int32))
    tensor, restore = _as_bytes(tensor)
    output, received = _run(
        MPI_LIB.horovod_alltoall,
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
    return _run(
        MPI_LIB.horovod_reducescatter,
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
    return _run(
        MPI_LIB.horovod_grouped_reducescatter,
        [tf_variable(tensor) for tensor in tensors],
        name=_default_name(name, "GroupedReducescatter", tensors[0], tensors[-1]),
        reduce_op=op,
        ignore_name_scope=ignore_name_scope,
        process_set_id=_set_id(process_set),
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
    )


def join() -> Any:
    """Tells that this rank has no more data; returns, when all have, the one that was last."""
    xla_ops.refuse_if_compiling("join")
    return MPI_LIB.horovod_join()


def barrier(process_set: ProcessSet = global_process_set) -> Any:
    """Returns when every rank of the set is here."""
    xla_ops.refuse_if_compiling("barrier")
    return MPI_LIB.horovod_barrier(process_set_id=_set_id(process_set))


# ---- questions, answered when the graph runs ----


def size_op(process_set_id: int = 0, name: str | None = None) -> Any:
    """A tensor: the size of a process set when the graph runs."""
    return MPI_LIB.horovod_size(process_set_id=process_set_id, name=name)


def process_set_included_op(process_set_id: int = 0, name: str | None = None) -> Any:
    """A tensor: is this rank in the set, when the graph runs? 1, 0 or an error below 0."""
    return MPI_LIB.horovod_process_set_included(process_set_id=process_set_id, name=name)


def local_size_op(name: str | None = None) -> Any:
    """A tensor: local_size() when the graph runs."""
    return MPI_LIB.horovod_local_size(name=name)


def rank_op(name: str | None = None) -> Any:
    """A tensor: rank() when the graph runs."""
    return MPI_LIB.horovod_rank(name=name)


def local_rank_op(name: str | None = None) -> Any:
    """A tensor: local_rank() when the graph runs."""
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
    attributes = _Attributes(op)
    return _allreduce(grad, wire=attributes.wire, **attributes.reduction())


def _grouped_allreduce_grad(op, *grads):
    attributes = _Attributes(op)
    return _grouped_allreduce(list(grads), wire=attributes.wire, **attributes.reduction())


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
