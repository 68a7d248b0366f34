# SPDX-License-Identifier: Apache-2.0
"""Gradient compression: what travels between ranks may be smaller than what is computed with.

A framework's package adds how it casts; see horovod/torch/compression.py.
"""

from typing import Any


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
