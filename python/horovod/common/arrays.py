# SPDX-License-Identifier: Apache-2.0
"""Collectives on NumPy arrays, for bindings that have nothing better than the host's memory.

Each call waits for its result. A call that fails or is interrupted leaves nothing behind: arrays of
operations that go on stay alive until those have ended.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from horovod.common.handles import Handles, group_names
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

    def __init__(self, capsule: Any) -> None:
        self._capsule = capsule

    def __dlpack__(self, **unused: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


def _view(array: np.ndarray) -> tuple:
    name = array.dtype.name
    if name not in DTYPES:
        raise ValueError(f"Horovod does not move arrays of type {name}.")
    return (array.ctypes.data, DTYPES[name], array.shape)


def dense(array: Any) -> np.ndarray:
    """The array itself if the core can read it where it lies, else a copy that it can."""
    dtype = np.asanyarray(array).dtype
    if not dtype.isnative:
        dtype = dtype.newbyteorder("=")
    # A scalar may come as a NumPy scalar, which has no address to write to.
    return np.require(array, dtype, requirements=["C", "A"]).reshape(np.shape(array))


def _take(handle: int, dtype: np.dtype) -> np.ndarray:
    """A result whose length was not known before, copied out of the library."""
    # DLPack in NumPy knows no bfloat16: the same bits as integers.
    code = native.UINT16 if dtype.name == "bfloat16" else DTYPES[dtype.name]
    capsule: Any = _Capsule(native.result(handle, 0, code))
    return np.array(np.from_dlpack(capsule)).view(dtype)


def _names(name: str | None, count: int) -> Sequence[str | None]:
    return [name] if count == 1 else group_names("", name, count) or [None] * count


class Arrays(Handles):
    """The collectives, and the handles of those that are running."""

    __slots__ = ()

    def start_same_shape(
        self,
        kind: int,
        inputs: Sequence[np.ndarray],
        outputs: Sequence[np.ndarray],
        name: str | None,
        op: int = native.SUM,
        scales: tuple[float, float] = NO_SCALES,
        root: int = 0,
        process_set_id: int = 0,
        finish: Callable[[Any], Any] | None = None,
        flags: int = 0,
    ) -> int:
        """Start an allreduce or broadcast of dense arrays.

        The result is the list `outputs`, or what `finish` makes of it.
        """
        entry = (None if finish is None else lambda _: finish(outputs), inputs, outputs)
        views, places = list(map(_view, inputs)), list(map(_view, outputs))
        if len(inputs) == 1:
            return self.start(
                *(kind, name, process_set_id, op, *scales, root),
                *(views[0], places[0], None, flags, entry),
            )
        names = group_names("", name, len(inputs))
        where = (process_set_id, op, *scales)
        return self.start_group(kind, names, *where, views, places, flags, entry)

    def same_shape(
        self,
        kind: int,
        arrays: Sequence[Any],
        name: str | None,
        op: int = native.SUM,
        scales: tuple[float, float] = NO_SCALES,
        root: int = 0,
        process_set_id: int = 0,
        flags: int = 0,
    ) -> list[np.ndarray]:
        """allreduce or broadcast: new arrays, each like the one that went in."""
        inputs = [dense(array) for array in arrays]
        outputs = [np.empty_like(array) for array in inputs]
        if kind == native.ALLREDUCE or len(inputs) == 1:
            handle = self.start_same_shape(
                kind, inputs, outputs, name, op, scales, root, process_set_id, flags=flags
            )
            return self.wait_for([handle])[0]
        # One by one: a group has no root.
        handles: list[int] = []
        try:
            for index, full in enumerate(_names(name, len(inputs))):
                one = slice(index, index + 1)
                handle = self.start_same_shape(
                    kind, inputs[one], outputs[one], full, op, scales, root, process_set_id
                )
                handles.append(handle)
        except BaseException:
            self.abandon(handles)
            raise
        return [results[0] for results in self.wait_for(handles)]

    def in_groups(
        self,
        kind: int,
        arrays: Sequence[Any],
        groups: Sequence[tuple[str | None, list[int]]],
        op: int,
        scales: tuple[float, float],
        process_set_id: int,
        flags: int = 0,
    ) -> list[np.ndarray]:
        """allreduce of several groups at once, [(name, indices of its arrays)]: new arrays."""
        inputs = [dense(array) for array in arrays]
        outputs = [np.empty_like(array) for array in inputs]
        handles: list[int] = []
        try:
            for name, which in groups:
                pair = [inputs[i] for i in which], [outputs[i] for i in which]
                handle = self.start_same_shape(
                    kind, *pair, name, op, scales, 0, process_set_id, flags=flags
                )
                handles.append(handle)
        except BaseException:
            self.abandon(handles)
            raise
        self.wait_for(handles)
        return outputs

    def start_by_rows(
        self,
        kind: int,
        array: np.ndarray,
        name: str | None,
        op: int = native.SUM,
        scales: tuple[float, float] = NO_SCALES,
        splits: list[int] | None = None,
        process_set_id: int = 0,
        finish: Callable[[Any, Any], Any] = lambda output, received: (output, received),
    ) -> int:
        """Start an allgather, alltoall or reducescatter of a dense array.

        The result is (new array, rows received from each rank), or what `finish` makes of them.
        """

        def take(handle: int) -> Any:
            output = _take(handle, array.dtype)
            if kind != native.ALLTOALL:
                return finish(output, [])
            count = native.process_set_size(process_set_id)
            return finish(output, native.result_splits(handle, 0, count))

        return self.start(
            *(kind, name, process_set_id, op, *scales, 0),
            *(_view(array), None, splits, 0, (take, array)),
        )

    def by_rows(
        self,
        kind: int,
        arrays: Sequence[Any],
        name: str | None,
        op: int = native.SUM,
        scales: tuple[float, float] = NO_SCALES,
        splits: list[int] | None = None,
        process_set_id: int = 0,
    ) -> tuple[list[np.ndarray], np.ndarray]:
        """allgather, alltoall or reducescatter: (new arrays, rows received from each rank)."""
        inputs = [dense(array) for array in arrays]
        handles: list[int] = []
        try:
            for array, full in zip(inputs, _names(name, len(inputs)), strict=True):
                handles.append(
                    self.start_by_rows(kind, array, full, op, scales, splits, process_set_id)
                )
        except BaseException:
            self.abandon(handles)
            raise
        results = self.wait_for(handles)
        received = results[-1][1] if results else []
        return [output for output, _ in results], np.array(received, dtype=np.int32)

    def without_tensor(self, kind: int, process_set_id: int = 0) -> int:
        """join or barrier: the rank that joined last, or 0."""
        finish = native.result_rank if kind == native.JOIN else lambda handle: 0
        handle = self.start(
            *(kind, None, process_set_id, native.SUM, *NO_SCALES, 0),
            *(None, None, None, 0, (finish,)),
        )
        return self.wait_for([handle])[0]

    def wait_for(self, handles: list[int]) -> list:
        """The results of all; if one fails, nobody waits for the others."""
        try:
            return [self.synchronize(handle) for handle in handles]
        except BaseException:
            self.abandon(handles)
            raise
