# SPDX-License-Identifier: Apache-2.0
"""The examples for Ray run in the cluster of the tests."""

import re

from example_jobs import in_turn, succeeded
from launching import run


def output_of(cluster, path):
    return succeeded(run(in_turn([path]), {"RAY_ADDRESS": cluster.address}))


def test_run(cluster):
    output = output_of(cluster, "ray/run_numpy.py")
    assert "[(0, 5.0), (1, 5.0)]" in output
    assert "'step': 2" in output


def test_elastic(cluster):
    assert "(1000, 1000.0)" in output_of(cluster, "ray/elastic_numpy.py")


def test_train(cluster):
    output = output_of(cluster, "ray/train_numpy.py")
    slope, start = re.search(r"'step': 100, 'weights': \[(\S+), (\S+)\]", output).groups()
    assert abs(float(slope) - 3) < 0.1 and abs(float(start) - 1) < 0.1
