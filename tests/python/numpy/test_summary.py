# SPDX-License-Identifier: Apache-2.0
"""horovodrun --summary: one paragraph at the end, from rank 0's measurements."""

import re
import subprocess
import sys

import pytest
from launching import find_launcher

SMALL = """
import numpy as np, horovod.numpy as hvd
hvd.init()
for step in range(50):
    hvd.allreduce(np.ones(10), name="a")
    hvd.allreduce(np.ones(10), name="b")
"""
COMPUTES = """
import time, numpy as np, horovod.numpy as hvd
hvd.init()
for step in range(10):
    time.sleep(0.05)
    hvd.allreduce(np.ones(10), name="a")
hvd.shutdown()
"""
FAILS = SMALL + "raise ValueError('no label')\n"
KILLED = SMALL + "import os; os.kill(os.getpid(), 9)\n"


def summaries(tmp_path, source, *flags):
    script = tmp_path / "script.py"
    script.write_text(source)
    command = [find_launcher(), "-np", "2", *flags, sys.executable, str(script)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    return re.findall(r"^horovodrun: summary: (.*)$", result.stderr, re.MULTILINE), result


@pytest.mark.parametrize(
    ("source", "part"),
    [
        (SMALL, r"48 steps on 2 ranks\. A step takes .* Its batches are small"),
        (COMPUTES, r"A step takes .*Computing and loading data bound it"),
        (FAILS, r"48 steps on 2 ranks\. A step takes"),
        (KILLED, "rank 0 reported nothing"),
    ],
    ids=["small", "computes", "fails", "killed"],
)
def test_paragraph(tmp_path, source, part):
    found, result = summaries(tmp_path, source, "--summary")
    assert len(found) == 1, result.stderr
    assert re.search(part, found[0]), result.stderr
    assert (result.returncode == 0) == (source in (SMALL, COMPUTES))


def test_only_if_asked(tmp_path):
    found, result = summaries(tmp_path, SMALL)
    assert (found, result.returncode) == ([], 0)
