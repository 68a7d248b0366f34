# SPDX-License-Identifier: Apache-2.0
"""Start the files `ranks_*.py` on several ranks: by horovodrun, or by torchrun."""

import sys
from pathlib import Path

import pytest
from launching import run

sys.path.append(str(Path(__file__).resolve().parent))  # what the files of ranks share


@pytest.fixture
def torchrun():
    """torchrun(file, ranks, *arguments) runs a program by PyTorch's own launcher."""

    def start(path, ranks, *arguments, env=None, options=()):
        command = [sys.executable, "-W", "ignore", "-m", "torch.distributed.run"]
        command += [f"--nproc-per-node={ranks}", "--master-port=0", *options]
        command += ["--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0"]
        return run([*command, str(path), *map(str, arguments)], env, 300)

    return start
