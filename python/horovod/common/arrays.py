# SPDX-License-Identifier: Apache-2.0
"""Collectives on NumPy arrays, for bindings that have nothing better than the host's memory.

Each call waits for its result. Errors are those of the native module: ValueError for what can't be
submitted, native.StatusError for what failed.
"""

import numpy as np

from horovod.common.library import native

DTYPES = {
    "uint8": native.UINT8,
    "int8": native.INT8,
    "uint16": native.UINT16,
    "int16": native.INT16,
    "int32": native.INT32,
    "int64": native.INT64,
    "float16": native.FLOAT16,
    "float32": native.FLOAT32,
    "float64": native.FLOAT64,
    "bool": native.BOOL,
    "bfloat16": native.BFLOAT16,
}
NO_SCALES = (1.0, 1.0)


class _Capsule:
    """What NumPy wants of somebody who offers memory by DLPack."""

    def __init__(self, capsule):
        self._capsule = capsule

    def __dlpack__(self, **unused):
        return self._capsule

    def __dlpack_device__(self):
        return (1, 0)


def _code(array):
    name = array.dtype.name
    if name not in DTYPES:
        raise ValueError(f"Horovod does not move arrays of type {name}.")
    return DTYPES[name]


def _view(array):
    return (array.ctypes.data, _code(array), array.shape)


def _memory(array):
    # A scalar may come as a NumPy scalar, which has no address to write to.
    return np.require(array, requirements=["C", "A"]).reshape(np.shape(array))


def group_name(name, index, count):
    return name if count == 1 else f"{name}_{index + 1}of{count}"


def same_shape(kind, arrays, name, op=native.SUM, scales=NO_SCALES, root=0, process_set_id=0):
    """allreduce or broadcast: new arrays, each like the one that went in."""
    inputs = [_memory(array) for array in arrays]
    outputs = [np.empty_like(array) for array in inputs]
    if len(inputs) == 1:
        views = (_view(inputs[0]), _view(outputs[0]))
        handle = native.submit(kind, name, process_set_id, op, *scales, root, *views, None, 0)
    else:
        names = [group_name(name, index, len(inputs)) for index in range(len(inputs))]
        sides = ([_view(array) for array in side] for side in (inputs, outputs))
        handle = native.submit_group(kind, names, process_set_id, op, *scales, *sides, 0)
    native.finish(handle)
    return outputs


def _take(handle, dtype):
    """A result whose length was not known before, copied out of the library."""
    # DLPack in NumPy knows no bfloat16: the same bits as integers.
    code = native.UINT16 if dtype.name == "bfloat16" else DTYPES[dtype.name]
    return np.array(np.from_dlpack(_Capsule(native.result(handle, 0, code)))).view(dtype)


def by_rows(kind, arrays, name, op=native.SUM, scales=NO_SCALES, splits=None, process_set_id=0):
    """allgather, alltoall or reducescatter: (new arrays, rows received from each rank)."""
    inputs = [_memory(array) for array in arrays]
    handles = [
        native.submit(
            *(kind, group_name(name, index, len(inputs)), process_set_id, op, *scales, 0),
            *(_view(array), None, splits, 0),
        )
        for index, array in enumerate(inputs)
    ]
    outputs, received = [], np.zeros(0, dtype=np.int32)
    for handle, array in zip(handles, inputs, strict=True):
        native.wait(handle)
        outputs.append(_take(handle, array.dtype))
        if kind == native.ALLTOALL:
            count = native.process_set_size(process_set_id)
            received = np.array(native.result_splits(handle, 0, count), dtype=np.int32)
        native.release(handle)
    return outputs, received
