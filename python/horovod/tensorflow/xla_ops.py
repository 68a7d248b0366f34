# SPDX-License-Identifier: Apache-2.0
"""Collectives inside functions that XLA compiles (`jit_compile=True`): allreduce and broadcast.

They are custom calls into libhorovod_tensorflow.so. Each blocks the compiled function until it has
ended, and shapes must be known, so a group of tensors in one call is the thing to use.
"""

import struct

import tensorflow as tf

from horovod.common.library import native

try:
    from tensorflow.compiler.tf2xla.ops import gen_xla_ops
    from tensorflow.python.ops import control_flow_util
except ImportError:
    gen_xla_ops = control_flow_util = None

_DTYPES = {
    tf.uint8: native.UINT8,
    tf.int8: native.INT8,
    tf.uint16: native.UINT16,
    tf.int16: native.INT16,
    tf.int32: native.INT32,
    tf.int64: native.INT64,
    tf.float16: native.FLOAT16,
    tf.float32: native.FLOAT32,
    tf.float64: native.FLOAT64,
    tf.bool: native.BOOL,
    tf.bfloat16: native.BFLOAT16,
}


def is_compiling():
    """Is the graph under construction one that XLA will compile?"""
    if control_flow_util is None or tf.executing_eagerly():
        return False
    graph = tf.compat.v1.get_default_graph()
    return control_flow_util.GraphOrParentsInXlaContext(graph)


def refuse_if_compiling(what):
    """One line instead of XLA's page about an op it does not know."""
    if is_compiling():
        raise NotImplementedError(
            f"hvd.{what}() can't be part of a function with jit_compile=True; call it outside of "
            "that function. What XLA compiles may hold allreduce, grouped_allreduce and broadcast."
        )


def target():
    """Name of the custom call, or None if this TensorFlow has no way to it."""
    from horovod.tensorflow import library

    has_op = gen_xla_ops is not None and hasattr(gen_xla_ops, "xla_custom_call_v2")
    return library.xla_target() if has_op else None


def is_available():
    """Can collectives be part of a compiled function?"""
    return target() is not None


def _float_bits(value):
    return struct.unpack("<I", struct.pack("<f", value))[0]


def _describe(tensor):
    if not tensor.shape.is_fully_defined():
        raise ValueError(
            f"Horovod: {tensor.name} has the shape {tensor.shape}; inside jit_compile=True it must "
            "be fully known."
        )
    if tensor.dtype not in _DTYPES:
        raise TypeError(f"Horovod does not move tensors of type {tensor.dtype.name}.")
    dims = tensor.shape.as_list()
    return " ".join(map(str, [_DTYPES[tensor.dtype], len(dims), *dims])) + "\n"


def _call(kind, tensors, name, op, scales, root_rank, process_set_id, wire=0):
    name_of_target = target()
    if name_of_target is None:
        raise NotImplementedError(
            "Horovod's collectives can't be compiled by XLA with this TensorFlow; use "
            "jit_compile=False for the function that holds them."
        )
    tensors = [tf.convert_to_tensor(tensor) for tensor in tensors]
    name = tf.compat.v1.get_default_graph().unique_name(name or "HorovodCollective")
    head = [kind, op, *map(_float_bits, scales), root_rank, process_set_id, wire, len(tensors)]
    config = " ".join(map(str, head)) + f" {name}\n" + "".join(map(_describe, tensors))
    return gen_xla_ops.xla_custom_call_v2(
        operands=tensors,
        call_target_name=name_of_target,
        backend_config=config,
        has_side_effect=True,
        result_dtypes=[tensor.dtype for tensor in tensors],
        result_shapes=[tensor.shape for tensor in tensors],
    )


def grouped_allreduce(tensors, name, op, prescale_factor, postscale_factor, process_set_id, wire=0):
    """wire: the hvd_wire_t of what is float32."""
    scales = (prescale_factor, postscale_factor)

    def reduce(group, group_name):
        return _call(native.ALLREDUCE, group, group_name, op, scales, 0, process_set_id, wire)

    @tf.custom_gradient
    def run(*group):
        def grad(*upstream):
            return reduce(upstream, f"{name}_grad")

        return reduce(group, name), grad

    return list(run(*[tf.convert_to_tensor(tensor) for tensor in tensors]))


def broadcast(tensor, root_rank, name, process_set_id):
    scales = (1.0, 1.0)
    return _call(native.BROADCAST, [tensor], name, native.SUM, scales, root_rank, process_set_id)[0]
