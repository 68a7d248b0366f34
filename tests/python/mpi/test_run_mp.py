# SPDX-License-Identifier: Apache-2.0
"""The C tests of real ranks (tests/mp) under real MPI launchers, with each way to move tensors.

They are taken from HVD_TEST_MP, else from the release build, else from the newest build tree.
"""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def programs():
    given = os.environ.get("HVD_TEST_MP")
    if given:
        return Path(given)
    built = sorted(
        ROOT.glob("build/*/tests/mp/test_mp_basic"),
        key=lambda p: (p.parts[-4] == "release", p.stat().st_mtime),
    )
    if not built:
        pytest.skip("the C tests are not built")
    return built[-1].parent


@pytest.mark.parametrize("operations", ["native", "mpi"])
@pytest.mark.parametrize("name,size", [("basic", 2), ("basic", 3), ("join", 3), ("input", 3)])
def test_mp(mpi, programs, name, size, operations):
    env = {**os.environ, "HVD_TEST_LAUNCHED": "1", "HVD_TEST_SIZES": str(size)}
    if operations == "mpi":
        env["HOROVOD_CPU_OPERATIONS"] = "mpi"
    done = subprocess.run(
        [mpi.mpirun, *mpi.many, "-np", str(size), programs / f"test_mp_{name}"],
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=110,
    )
    text = done.stdout + done.stderr
    assert done.returncode == 0, text[-4000:]
    assert "FAILED" not in text and text.count("PASSED") >= 1, text[-4000:]
