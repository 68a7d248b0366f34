# SPDX-License-Identifier: Apache-2.0
"""The example for MXNet runs on two ranks, and what it trains gets better."""

import re

from example_jobs import run_examples


def test_mnist():
    [output] = run_examples(2, ["mxnet/mxnet_mnist.py", "--epochs", 2, "--images", 1024])
    first, last = (float(text) for text in re.findall(r"accuracy (\d\.\d+)", output))
    assert last >= first and last > 0.8
