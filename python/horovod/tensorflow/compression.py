# SPDX-License-Identifier: Apache-2.0
"""Gradient compression: what travels between ranks may be smaller than what is computed with."""

import tensorflow as tf


class Compressor:
    """Makes a tensor smaller before an allreduce and restores it afterwards."""

    @staticmethod
    def compress(tensor):
        """Returns the tensor to send, and a context for decompress()."""
        raise NotImplementedError

    @staticmethod
    def decompress(tensor, ctx):
        raise NotImplementedError


class NoneCompressor(Compressor):
    @staticmethod
    def compress(tensor):
        return tensor, None

    @staticmethod
    def decompress(tensor, ctx):
        return tensor


class _CastCompressor(Compressor):
    """Floating-point tensors travel as another floating-point type."""

    wire_dtype = None

    @classmethod
    def compress(cls, tensor):
        dtype = tensor.dtype
        if dtype.is_floating:
            tensor = tf.cast(tensor, dtype=cls.wire_dtype)
        return tensor, dtype

    @classmethod
    def decompress(cls, tensor, ctx):
        if ctx.is_floating:
            tensor = tf.cast(tensor, dtype=ctx)
        return tensor


class FP16Compressor(_CastCompressor):
    wire_dtype = tf.float16


class BF16Compressor(_CastCompressor):
    wire_dtype = tf.bfloat16


class Compression:
    """What to pass as `compression=`."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
