# SPDX-License-Identifier: Apache-2.0
"""An operation that keeps a worker of MXNet's engine busy until a gate is opened."""

import ctypes
import threading

import mxnet as mx

_OPERATION = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
PRIORITIZED = 3  # the queue that Horovod's operations use
_kept = []


def occupy(tensor, gate, queue=0):
    """Push an operation that writes `tensor`; returns the event that it runs."""
    is_running = threading.Event()

    def run(run_context, param):
        is_running.set()
        gate.wait(120)

    function = _OPERATION(run)
    _kept.append(function)
    result = mx.base._LIB.MXEnginePushSyncND(
        *(function, None, None, (ctypes.c_int32 * 2)(1, 0), None, 0),
        *((ctypes.c_void_p * 1)(tensor.handle.value), 1, ctypes.byref(ctypes.c_int(queue))),
        *(0, b"occupy"),
    )
    assert result == 0, mx.base._LIB.MXGetLastError()
    return is_running
