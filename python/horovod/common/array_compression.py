# SPDX-License-Identifier: Apache-2.0
"""Compression of NumPy's and JAX' arrays; see horovod/common/compression.py."""

from typing import Any

from horovod.common.compression import CastCompressor, NoneCompressor


class _CastCompressor(CastCompressor):
    @staticmethod
    def is_floating(dtype: Any) -> bool:
        return dtype.name in ("float16", "bfloat16", "float32", "float64")

    @staticmethod
    def cast(tensor: Any, dtype: Any) -> Any:
        return tensor.astype(dtype)


class FP16Compressor(_CastCompressor):
    """Sends floating-point tensors as float16."""

    dtype = "float16"
    wire = "float16"


class BF16Compressor(_CastCompressor):
    """Sends floating-point tensors as bfloat16: the range of float32, 8 bits of precision."""

    dtype = "bfloat16"
    wire = "bfloat16"


class Compression:
    """What to pass as `compression=`: none, fp16 or bf16."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
