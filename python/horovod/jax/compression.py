# SPDX-License-Identifier: Apache-2.0
"""Gradient compression; see horovod/common/compression.py."""

from horovod.common.array_compression import (  # noqa: F401
    BF16Compressor,
    Compression,
    FP16Compressor,
)
from horovod.common.compression import Compressor, NoneCompressor  # noqa: F401
