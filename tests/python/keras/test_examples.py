# SPDX-License-Identifier: Apache-2.0
"""The examples run on two ranks; the second run resumes."""

import re

from example_jobs import run_elastic, run_examples

ENV = {"KERAS_BACKEND": "torch"}


def test_fit_and_callbacks(tmp_path):
    callbacks = ["keras/keras_callbacks.py", "--epochs", 4, "--checkpoint", tmp_path / "m.keras"]
    fit, first = run_examples(2, ["keras/keras_fit.py"], callbacks, env=ENV)
    assert float(re.search(r"accuracy on new points: (\S+)", fit)[1]) > 0.8
    [second] = run_examples(2, callbacks, env=ENV)
    losses = []
    for word, output in (("new", first), ("resumed", second)):
        found = re.search(rf"{word} loss (\S+) -> (\S+)", output)
        losses.append((float(found[1]), float(found[2])))
    assert losses[0][1] < losses[0][0] / 2
    assert losses[1][0] < losses[0][0] / 2  # begins where the first run ended


def test_elastic():
    output = run_elastic("elastic/keras_elastic.py", "--epochs", 2, env=ENV)
    losses = [float(text) for text in re.findall(r"loss: ([-+.\de]+)", output)]
    assert "done" in output and losses[-1] < losses[0]
