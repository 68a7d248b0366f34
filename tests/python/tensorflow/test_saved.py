# SPDX-License-Identifier: Apache-2.0
"""Saved models hold no trace of Horovod: they load and predict where it is not installed."""

import sys

import pytest

TRAIN = """
import sys
import numpy as np, tensorflow as tf
import horovod.tensorflow.keras as hvd
keras, folder = tf.keras, sys.argv[1]
hvd.init()
model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(3), keras.layers.Dense(1)])
model.compile(hvd.DistributedOptimizer(keras.optimizers.Adam(0.01), backward_passes_per_step=2),
              keras.losses.MeanSquaredError())
model.fit(np.ones((32, 4)), np.ones((32, 1)), batch_size=4, epochs=2, verbose=0,
          callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])
if hvd.rank() == 0:
    model.save(folder + "/model.keras")
    model.save(folder + "/model.h5")
    model.save_weights(folder + "/model.weights.h5")
    if hasattr(model, "export"):
        model.export(folder + "/exported")
    else:
        model.save(folder + "/exported")
    np.save(folder + "/expected.npy", model.predict(np.eye(4), verbose=0))
"""

PREDICT = """
import sys
import numpy as np, tensorflow as tf
folder, ending = sys.argv[1:]
expected = np.load(folder + "/expected.npy")
if ending == "exported":
    loaded = tf.saved_model.load(folder + "/exported")
    serve = loaded.serve if hasattr(loaded, "serve") else loaded
    result = serve(tf.constant(np.eye(4), tf.float32))
else:
    model = tf.keras.models.load_model(folder + "/model." + ending)
    assert type(model.optimizer).__name__ == "Adam", model.optimizer
    result = model.predict(np.eye(4), verbose=0)
    # Keras 3 can't go on training from .h5: it does not bring back the optimizer's slots.
    if ending == "keras" or not hasattr(model.optimizer, "stateless_apply"):
        model.fit(np.ones((8, 4)), np.ones((8, 1)), verbose=0)
assert np.allclose(result, expected, atol=1e-5)
print("as expected")
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory, launch_ranks):
    path = tmp_path_factory.mktemp("saved")
    script = path / "train.py"
    script.write_text(TRAIN, encoding="utf-8")
    result = launch_ranks(2, sys.executable, script, path)
    assert result.returncode == 0, result.stdout[-8000:]
    return path


@pytest.mark.parametrize("ending", ["keras", "h5", "exported"])
def test_loads_without_horovod(folder, run_alone, ending):
    assert "as expected" in run_alone(PREDICT, folder, ending)


def test_no_trace_in_the_file(folder):
    for name in ("model.keras", "model.h5", "model.weights.h5"):
        content = (folder / name).read_bytes().lower()
        assert b"horovod" not in content and b"hvd" not in content
