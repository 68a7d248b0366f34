# SPDX-License-Identifier: Apache-2.0
"""The examples for TensorFlow run on two ranks, and what they train gets better.

Each runs with one TensorFlow only: current scripts with the current one, graphs with the older.
"""

import re

import pytest
import tensorflow as tf
from example_jobs import run_elastic, run_examples
from launching import TENSORFLOW

IS_OLD = not tf.__version__.startswith("2.2")
current = pytest.mark.skipif(IS_OLD, reason="runs with the current TensorFlow")
old = pytest.mark.skipif(not IS_OLD, reason="runs with TensorFlow 2.15, which has Estimators")


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    """The examples write checkpoints to where they are started."""
    monkeypatch.chdir(tmp_path)


@current
def test_tensorflow2():
    benchmark = ["tensorflow2/tensorflow2_synthetic_benchmark.py", "--model", "MobileNetV2"]
    benchmark += ["--image-size", 32, "--batch-size", 2, "--num-warmup-batches", 1]
    loop, fit, speed = run_examples(
        2,
        ["tensorflow2/tensorflow2_custom_loop.py", "--epochs", 2],
        ["tensorflow2/tensorflow2_keras_fit.py", "--epochs", 2],
        [*benchmark, "--num-batches-per-iter", 1, "--num-iters", 1],
        env=TENSORFLOW,
    )
    first, last = (float(text) for text in re.findall(r"epoch \d: loss (\d+\.\d+)", loop))
    assert last < first
    for text in (loop, fit):
        assert float(re.search(r"accuracy on new images: (\S+)", text)[1]) > 0.5
    assert "Total img/sec on 2" in speed


@current
def test_elastic():
    output = run_elastic("elastic/tensorflow2_elastic.py", "--batches", 100, env=TENSORFLOW)
    assert "batch 100: loss" in output and "done" in output


@old
def test_graphs():
    session, estimator = run_examples(
        2,
        ["tensorflow/train_in_session.py"],
        ["tensorflow/train_with_estimator.py", "--steps", 200],
        env=TENSORFLOW,
    )
    assert float(re.search(r"distance to the truth (\S+)", session)[1]) < 0.1
    assert float(re.search(r"accuracy on new points: (\S+)", estimator)[1]) > 0.8
