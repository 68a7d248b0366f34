# SPDX-License-Identifier: Apache-2.0
"""Gradient compression: what travels between ranks may be smaller than what is computed with.

A framework's package adds how it casts; see horovod/torch/compression.py. A sum or an average of
float32 need not be cast: the core converts what leaves the machine (`wire`, see wire_of()).
"""

from typing import Any

from horovod.common.library import native

_WIRES = {"float16": native.WIRE_FLOAT16, "bfloat16": native.WIRE_BFLOAT16}


class Compressor:
    """Makes a tensor smaller before an allreduce and restores it afterwards; subclass it."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """Returns the tensor to send, and whatever decompress() needs to know."""
        raise NotImplementedError

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """Returns the tensor as it was before compress(), with the values that came back."""
        raise NotImplementedError


class NoneCompressor(Compressor):
    """Sends tensors as they are."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """Returns the tensor itself."""
        return tensor, None

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """Returns the tensor itself."""
        return tensor


class CastCompressor(Compressor):
    """Sends floating-point tensors as another floating-point type, `dtype`."""

    dtype: Any = None

    @staticmethod
    def is_floating(dtype: Any) -> bool:
        """Is it a type that is cast?"""
        raise NotImplementedError

    @staticmethod
    def cast(tensor: Any, dtype: Any) -> Any:
        """The tensor with elements of another type."""
        raise NotImplementedError

    @classmethod
    def compress(cls, tensor: Any) -> tuple[Any, Any]:
        """Returns the tensor as `dtype`, and the type it had."""
        dtype = tensor.dtype
        return (cls.cast(tensor, cls.dtype) if cls.is_floating(dtype) else tensor), dtype

    @classmethod
    def decompress(cls, tensor: Any, ctx: Any) -> Any:
        """Returns the tensor with the type it had."""
        return cls.cast(tensor, ctx) if cls.is_floating(ctx) else tensor


def wire_of(compression: Any, op: int) -> int:
    """The hvd_wire_t by which float32 travels as this compressor wants it; 0: call compress().

    Only a class that has a `wire` of its own is meant, not one derived from it: that may have
    another compress().
    """
    if op not in (native.AVERAGE, native.SUM) or not isinstance(compression, type):
        return 0
    return _WIRES.get(vars(compression).get("wire", ""), 0)


def wire_flag(compression: Any, op: int) -> int:
    """The same among the flags of native.submit(), where it concerns only what is float32."""
    return wire_of(compression, op) << native.WIRE_SHIFT
