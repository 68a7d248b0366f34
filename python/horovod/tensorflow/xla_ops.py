# SPDX-License-Identifier: Apache-2.0
"""Collectives inside functions that XLA compiles (`jit_compile=True`)."""

import tensorflow as tf

try:
    from tensorflow.python.ops import control_flow_util
except ImportError:
    control_flow_util = None


def is_compiling():
    """Is the graph under construction one that XLA will compile?"""
    if control_flow_util is None or tf.executing_eagerly():
        return False
    graph = tf.compat.v1.get_default_graph()
    return control_flow_util.GraphOrParentsInXlaContext(graph)


def is_available():
    """Can collectives be part of a compiled function?"""
    return False


def grouped_allreduce(tensors, name, op, prescale_factor, postscale_factor, process_set_id):
    raise NotImplementedError(
        "Horovod's collectives can't be compiled by XLA with this TensorFlow; use "
        "jit_compile=False for the function that holds them."
    )
