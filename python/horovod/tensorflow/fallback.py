# SPDX-License-Identifier: Apache-2.0
"""The ops in Python, for a TensorFlow whose C interface lacks something: same names, slower.

Each op is a tf.numpy_function around horovod._native. It copies its tensors, holds a thread of
TensorFlow while it waits, and tf.function runs them one after the other, in the order of the
program, which is the same on all ranks. Graphs of TensorFlow 1 have no such order: there they may
need as many inter-op threads as there are collectives that can start at once.
"""

import numpy as np
import tensorflow as tf

from horovod.common.arrays import Arrays
from horovod.common.library import native

_ERRORS = {
    native.CLASS_PRECONDITION: tf.errors.FailedPreconditionError,
    native.CLASS_ABORTED: tf.errors.AbortedError,
    native.CLASS_UNKNOWN: tf.errors.UnknownError,
}


def _error_of(error):
    """What TensorFlow calls a failure; the status says which."""
    kind = _ERRORS.get(getattr(error, "status_class", None), tf.errors.UnknownError)
    return kind(None, None, f"Horovod: {error}")


_arrays = Arrays(_error_of)


class _Attributes:
    """Stands for a graph's op in the gradient functions of mpi_ops."""

    def __init__(self, inputs, attributes):
        self.inputs = inputs
        self.outputs = None
        self._attributes = {"ignore_name_scope": False, **attributes}

    def get_attr(self, name):
        return self._attributes[name]


def _translated(function):
    """Errors of the library as TensorFlow's."""

    def wrapper(*args):
        if not native.is_initialized():
            raise tf.errors.FailedPreconditionError(
                None, None, "Horovod has not been initialized; use hvd.init()."
            )
        try:
            return function(*args)
        except ValueError as error:
            raise tf.errors.InvalidArgumentError(None, None, str(error)) from error

    return wrapper


def _name(name, kind):
    """In graphs the given name, made unique in the graph, whatever else this rank has traced."""
    if name is None:
        name = f"Horovod{kind}"
    if tf.executing_eagerly():
        return name
    return tf.compat.v1.get_default_graph().unique_name(name)


def _call(run, inputs, dtypes):
    """tf.numpy_function that always gives a list. Inside graphs TensorFlow keeps only some classes
    of errors apart: what is a FailedPreconditionError here arrives as an UnknownError there."""
    results = tf.numpy_function(run, inputs, dtypes)
    return list(results) if isinstance(results, (list, tuple)) else [results]


def _same_shape(kind, tensors, name, reduce_op, scales, root, process_set_id, wire=0):
    """allreduce and broadcast: outputs are like the inputs."""
    tensors = [tf.convert_to_tensor(tensor) for tensor in tensors]
    dtypes = [tensor.dtype for tensor in tensors]

    @_translated
    def run(*inputs):
        where = (root, process_set_id, wire << native.WIRE_SHIFT)
        return _arrays.same_shape(kind, inputs, name, reduce_op, scales, *where)

    results = _call(run, tensors, dtypes)
    for result, tensor in zip(results, tensors, strict=True):
        result.set_shape(tensor.shape)
    return results


def _rows(kind, tensors, name, reduce_op, scales, splits, process_set_id):
    """allgather, alltoall, reducescatter: the first dimension is known at the end only."""
    tensors = [tf.convert_to_tensor(tensor) for tensor in tensors]
    dtypes = [tensor.dtype for tensor in tensors]

    @_translated
    def run(rows_for, *inputs):
        outputs, received = _arrays.by_rows(
            kind, inputs, name, reduce_op, scales, rows_for.tolist() or None, process_set_id
        )
        return [*outputs, received]

    results = _call(run, [splits, *tensors], [*dtypes, tf.int32])
    for result, tensor in zip(results, tensors, strict=False):
        if tensor.shape.rank == 0:
            raise ValueError("Out of range dim_index 0 for shape with 0 dimensions")
        if tensor.shape.rank is not None:
            result.set_shape([None, *tensor.shape[1:]])
    return results[:-1], results[-1]


def _differentiable(op_name, tensors, attributes, compute):
    """Runs compute(*tensors) with the gradient that mpi_ops has for the op."""

    @tf.custom_gradient
    def run(*inputs):
        outputs = compute(*inputs)

        def grad(*upstream):
            from horovod.tensorflow import mpi_ops

            op = _Attributes(inputs, attributes)
            op.outputs = outputs
            answer = mpi_ops.GRADIENTS[op_name](op, *upstream)
            return list(answer) if isinstance(answer, (list, tuple)) else [answer]

        return outputs, grad

    return run(*[tf.convert_to_tensor(tensor) for tensor in tensors])


def _grouped(op_name, tensors, attributes, name, compute):
    """The results of compute(inputs, name), under the name that the op has in this graph."""
    name = _name(name, op_name.removeprefix("Horovod"))
    return list(
        _differentiable(op_name, tensors, attributes, lambda *inputs: compute(inputs, name))
    )


def _single(grouped, op_name):
    """The op of that name, which is a group of one tensor."""
    return lambda tensor, **options: grouped([tensor], op_name=op_name, **options)[0]


_NO_SPLITS = np.zeros(0, dtype=np.int32)


def _scales(*factors):
    """As attributes of the native ops have them: in single precision."""
    return tuple(float(np.float32(factor)) for factor in factors)


def _reduction(kind, op_name, tensors, name, reduce_op, factors, process_set_id, wire=0):
    """allreduce or reducescatter of a group, under its name in this graph."""
    scales = _scales(*factors)
    attributes = {
        "reduce_op": reduce_op,
        "prescale_factor": factors[0],
        "postscale_factor": factors[1],
        "process_set_id": process_set_id,
        "wire": wire,
    }

    def compute(inputs, name):
        options = kind, inputs, name, reduce_op, scales
        if kind == native.ALLREDUCE:
            return _same_shape(*options, 0, process_set_id, wire)
        return _rows(*options, _NO_SPLITS, process_set_id)[0]

    return _grouped(op_name, tensors, attributes, name, compute)


def horovod_grouped_allreduce(
    tensors,
    reduce_op,
    prescale_factor,
    postscale_factor,
    ignore_name_scope=False,
    process_set_id=0,
    wire=0,
    name=None,
    op_name="HorovodGroupedAllreduce",
):
    kind, factors = native.ALLREDUCE, (prescale_factor, postscale_factor)
    return _reduction(kind, op_name, tensors, name, reduce_op, factors, process_set_id, wire)


horovod_allreduce = _single(horovod_grouped_allreduce, "HorovodAllreduce")


def horovod_grouped_allgather(
    tensors,
    ignore_name_scope=False,
    process_set_id=0,
    name=None,
    op_name="HorovodGroupedAllgather",
):
    return _grouped(
        op_name,
        tensors,
        {"process_set_id": process_set_id},
        name,
        lambda inputs, name: _rows(
            native.ALLGATHER, inputs, name, native.SUM, (1.0, 1.0), _NO_SPLITS, process_set_id
        )[0],
    )


horovod_allgather = _single(horovod_grouped_allgather, "HorovodAllgather")


def horovod_broadcast(tensor, root_rank, ignore_name_scope=False, process_set_id=0, name=None):
    name = _name(name, "Broadcast")
    return _differentiable(
        "HorovodBroadcast",
        [tensor],
        {"root_rank": root_rank, "process_set_id": process_set_id},
        lambda *inputs: _same_shape(
            native.BROADCAST, inputs, name, native.SUM, (1.0, 1.0), root_rank, process_set_id
        ),
    )[0]


def horovod_grouped_reducescatter(
    tensors,
    reduce_op,
    ignore_name_scope=False,
    process_set_id=0,
    prescale_factor=1.0,
    postscale_factor=1.0,
    name=None,
    op_name="HorovodGroupedReducescatter",
):
    kind, factors = native.REDUCESCATTER, (prescale_factor, postscale_factor)
    return _reduction(kind, op_name, tensors, name, reduce_op, factors, process_set_id)


horovod_reducescatter = _single(horovod_grouped_reducescatter, "HorovodReducescatter")


def horovod_alltoall(tensor, splits, ignore_name_scope=False, process_set_id=0, name=None):
    name = _name(name, "Alltoall")

    @tf.custom_gradient
    def run(value):
        (output,), received = _rows(
            native.ALLTOALL, [value], name, native.SUM, (1.0, 1.0), splits, process_set_id
        )

        def grad(upstream, unused):
            return horovod_alltoall(upstream, received, process_set_id=process_set_id)[0]

        return (output, received), grad

    return run(tf.convert_to_tensor(tensor))


def _simple(kind, process_set_id):
    run = _translated(lambda: np.int32(_arrays.without_tensor(kind, process_set_id)))
    result = tf.numpy_function(run, [], tf.int32)
    result.set_shape([])
    return result


def horovod_join():
    return _simple(native.JOIN, 0)


def horovod_barrier(process_set_id=0):
    return _simple(native.BARRIER, process_set_id)


def _question(function):
    result = tf.numpy_function(_translated(lambda: np.int32(function())), [], tf.int32)
    result.set_shape([])
    return result


def _set_size(process_set_id):
    try:
        return native.process_set_size(process_set_id)
    except (ValueError, RuntimeError):
        return -3


def _set_included(process_set_id):
    if _set_size(process_set_id) < 0:
        return -3
    return int(native.rank() in native.process_sets()[process_set_id])


def horovod_size(process_set_id=0, name=None):
    return _question(lambda: _set_size(process_set_id))


def horovod_process_set_included(process_set_id=0, name=None):
    return _question(lambda: _set_included(process_set_id))


def horovod_local_size(name=None):
    return _question(native.local_size)


def horovod_rank(name=None):
    return _question(native.rank)


def horovod_local_rank(name=None):
    return _question(native.local_rank)
