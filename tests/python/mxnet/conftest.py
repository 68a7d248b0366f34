# SPDX-License-Identifier: Apache-2.0
"""Without MXNet the whole folder is left out."""

import importlib.util
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent))  # modules that the files of ranks share

if importlib.util.find_spec("mxnet") is None:
    collect_ignore_glob = ["*"]
