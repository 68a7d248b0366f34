# SPDX-License-Identifier: Apache-2.0
"""The examples for Spark run on two local cores, in a driver of their own."""

import re
import sys

from example_jobs import in_turn, succeeded
from launching import run


def test_examples(tmp_path):
    env = {
        "PYSPARK_SUBMIT_ARGS": f"--master local[2] --conf spark.local.dir={tmp_path} pyspark-shell",
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    names = ("run_numpy.py", "torch_estimator.py", "lightning_estimator.py")
    output = succeeded(run(in_turn(*([f"spark/{name}"] for name in names)), env))
    assert "[10.0, 10.0]" in output or re.search(r"\[(np\.float64\()?10\.0\)?, ", output)
    losses = [float(text) for text in re.findall(r"'loss': ([-+.\de]+)", output)]
    assert len(losses) >= 5 and losses[-1] < losses[0]
