# SPDX-License-Identifier: Apache-2.0
"""Send gradients with fewer bits: `compression=hvd.Compression.fp16` or `.bf16`."""

from typing import Any

import tensorflow as tf

from horovod.common.compression import CastCompressor, Compressor, NoneCompressor  # noqa: F401


class _CastCompressor(CastCompressor):
    @staticmethod
    def is_floating(dtype: Any) -> bool:
        return dtype.is_floating

    @staticmethod
    def cast(tensor: Any, dtype: Any) -> Any:
        return tf.cast(tensor, dtype=dtype)


class FP16Compressor(_CastCompressor):
    """Sends floating-point tensors as float16."""

    dtype = tf.float16
    wire = "float16"


class BF16Compressor(_CastCompressor):
    """Sends floating-point tensors as bfloat16: the range of float32, 8 bits of precision."""

    dtype = tf.bfloat16
    wire = "bfloat16"


class Compression:
    """What to pass as `compression=`: none, fp16 or bf16."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
