# SPDX-License-Identifier: Apache-2.0
"""Tensors on their way to the core and back, and how a ReduceOp is done for a type.

Start reading at `flatten` and `Reduction`.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.distributed import ReduceOp

from horovod.common.library import native
from horovod.torch.mpi_ops import _DTYPES, _HAS_EXCHANGE
from horovod.torch.private import premul_factor

_Op = ReduceOp.RedOpType
_CORE_OPS = {
    _Op.SUM: native.SUM,
    _Op.AVG: native.SUM,
    _Op.PREMUL_SUM: native.SUM,
    _Op.PRODUCT: native.PRODUCT,
    _Op.MIN: native.MIN,
    _Op.MAX: native.MAX,
}
_FOLDS: dict[Any, Callable] = {
    _Op.SUM: torch.add,
    _Op.AVG: torch.add,
    _Op.PREMUL_SUM: torch.add,
    _Op.PRODUCT: torch.mul,
    _Op.MIN: torch.minimum,
    _Op.MAX: torch.maximum,
    _Op.BAND: torch.bitwise_and,
    _Op.BOR: torch.bitwise_or,
    _Op.BXOR: torch.bitwise_xor,
}


def flatten(tensor: torch.Tensor) -> torch.Tensor:
    """The elements as a dense vector: a view where that is possible."""
    if tensor.layout is not torch.strided:
        raise RuntimeError(
            f"Tensors must be dense, not {tensor.layout}; only all_reduce takes sparse ones."
        )
    if not tensor.is_cpu:
        raise RuntimeError(
            f"The horovod backend works on CPU tensors, not on {tensor.device}; copy it to the "
            'CPU, or name a backend for its device: init_process_group("cpu:horovod,cuda:nccl").'
        )
    tensor = tensor.detach()
    if tensor.is_conj() or tensor.is_neg():
        tensor = tensor.resolve_conj().resolve_neg()
    tensor = tensor.contiguous()
    return tensor if tensor.dim() == 1 else tensor.view(-1)


def as_bytes(flat: torch.Tensor) -> torch.Tensor:
    return flat if flat.dtype == torch.uint8 else flat.view(torch.uint8)


def is_same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.data_ptr() == b.data_ptr() and not b.is_conj() and not b.is_neg()


def write_to(target: torch.Tensor, flat: torch.Tensor) -> None:
    """Copy a vector of results into a tensor, unless it is its memory already."""
    if target.numel() == 0 or (target.is_contiguous() and is_same(flat, target)):
        return
    with torch.no_grad():
        target.detach().copy_(flat.view(target.dtype).view(target.shape))


def to_native(tensor: torch.Tensor) -> Any:
    """What the native module reads of a dense vector."""
    if _HAS_EXCHANGE:
        return tensor
    return (tensor.data_ptr(), _DTYPES[tensor.dtype], tuple(tensor.shape))


def take_result(dtype: torch.dtype) -> Callable[[int], torch.Tensor]:
    def take(handle: int) -> torch.Tensor:
        return torch.utils.dlpack.from_dlpack(native.result(handle, 0, _DTYPES[dtype]))

    return take


def only_one(tensors: Any, what: str) -> Any:
    """The only tensor of a list."""
    if isinstance(tensors, torch.Tensor):
        return tensors
    if len(tensors) != 1:
        raise ValueError(f"{what} takes one tensor per rank, not {len(tensors)}.")
    return tensors[0]


class Reduction:
    """How a ReduceOp is done for a type: by the core or here."""

    _known: dict[tuple[Any, torch.dtype, int], "Reduction"] = {}

    @classmethod
    def of(cls, op: Any, dtype: torch.dtype, size: int) -> "Reduction":
        """How `op` is done; op is a ReduceOp or its type."""
        kind = getattr(op, "op", op)
        kind = kind if isinstance(kind, _Op) else op.__getstate__()[0]
        known = cls._known.get((kind, dtype, size))
        if known is None:
            known = cls(op, kind, dtype, size)
            if kind != _Op.PREMUL_SUM:  # each has a factor of its own
                cls._known[kind, dtype, size] = known
        return known

    def __init__(self, op: Any, kind: Any, dtype: torch.dtype, size: int) -> None:
        self.kind = kind
        self.is_average = kind == _Op.AVG
        self.size = size
        self.factor = premul_factor(op) if kind == _Op.PREMUL_SUM else None
        if dtype.is_complex and kind not in (_Op.SUM, _Op.AVG, _Op.PREMUL_SUM):
            raise RuntimeError(f"Complex tensors can't be reduced with {kind}; only sums can.")
        if dtype.is_floating_point and kind in (_Op.BAND, _Op.BOR, _Op.BXOR):
            raise RuntimeError(f"Cannot use {kind} with non-integral dtype {dtype}.")
        wire = torch.float32 if dtype == torch.complex64 else dtype
        wire = torch.float64 if dtype == torch.complex128 else wire
        self.wire = wire
        is_core_type = wire in _DTYPES and wire not in (torch.bool, torch.uint16)
        self.core = _CORE_OPS.get(kind) if is_core_type else None

    def prepare(self, flat: torch.Tensor) -> torch.Tensor:
        """The vector to reduce; another one if the factor changes it."""
        if self.factor is not None:
            flat = flat * self.factor
        return torch.view_as_real(flat).view(-1) if flat.is_complex() else flat

    def average(self, flat: torch.Tensor) -> torch.Tensor:
        """After the sum, in place."""
        if self.is_average:
            if flat.is_floating_point() or flat.is_complex():
                flat.div_(self.size)
            else:
                flat.div_(self.size, rounding_mode="trunc")
        return flat

    def fold(self, rows: Sequence[torch.Tensor]) -> torch.Tensor:
        """Reduce what every rank gave, in the order of the ranks."""
        fold = _FOLDS[self.kind]
        dtype = rows[0].dtype
        is_odd = dtype.itemsize == 1 and dtype.is_floating_point  # float8 has no arithmetic
        total = rows[0].to(torch.float32) if is_odd else rows[0].clone()
        for row in rows[1:]:
            total = fold(total, row.to(total.dtype))
        return self.average(total).to(dtype)
