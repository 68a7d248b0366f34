# SPDX-License-Identifier: Apache-2.0
"""Send gradients with fewer bits: `compression=hvd.Compression.fp16`."""

from typing import Any

import numpy as np

from horovod.common.compression import CastCompressor, Compressor, NoneCompressor  # noqa: F401


class FP16Compressor(CastCompressor):
    """Sends floating-point arrays as float16."""

    dtype = "float16"

    @staticmethod
    def is_floating(dtype: Any) -> bool:
        """Is it a type that is cast?"""
        return np.dtype(dtype).kind == "f"

    @staticmethod
    def cast(tensor: Any, dtype: Any) -> Any:
        """The array with elements of another type."""
        return tensor.astype(dtype, copy=False)


class Compression:
    """What to pass as `compression=`: none or fp16."""

    none = NoneCompressor
    fp16 = FP16Compressor
