# SPDX-License-Identifier: Apache-2.0
"""KerasEstimator on real Spark, with Keras 3 on PyTorch."""

import os

os.environ.setdefault("KERAS_BACKEND", "torch")

import keras  # noqa: E402
import numpy as np  # noqa: E402
import pytest  # noqa: E402
from horovod.spark.common.store import LocalStore  # noqa: E402
from horovod.spark.keras import KerasEstimator, KerasModel  # noqa: E402


def make_estimator(store, **given):
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1)])
    defaults = {
        "model": model,
        "optimizer": keras.optimizers.SGD(0.05),
        "loss": "mse",
        "feature_cols": ["features"],
        "label_cols": ["label"],
        "batch_size": 20,
        "epochs": 3,
        "random_seed": 1,
        "partitions_per_process": 1,
        "verbose": 0,
        "store": store,
        "num_proc": 2,
    }
    return KerasEstimator(**{**defaults, **given})


@pytest.fixture(scope="module")
def frame(spark):
    x = np.random.default_rng(0).normal(size=(400, 2))
    rows = [([float(a), float(b)], float(3 * a - b)) for a, b in x]
    return spark.createDataFrame(rows, ["features", "label"])


def test_fit_transform_and_resume(frame, tmp_path):
    store = LocalStore(str(tmp_path / "store"))
    model = make_estimator(store, validation=0.2, run_id="run").fit(frame)
    history = model.getHistory()
    assert len(history["loss"]) == 3 and history["loss"][-1] < 0.2 * history["loss"][0]
    assert history["val_loss"][-1] < history["val_loss"][0]
    found = model.transform(frame).select("label", "label__output").collect()
    assert np.mean([(row[0] - row[1]) ** 2 for row in found]) < 1.0
    model.save(str(tmp_path / "model"))
    again = KerasModel.load(str(tmp_path / "model"))
    np.testing.assert_array_equal(
        again.getModel().get_weights()[0], model.getModel().get_weights()[0]
    )
    resumed = make_estimator(store, run_id="run", epochs=1).fit_on_parquet().getHistory()
    assert resumed["loss"][0] < 2 * history["loss"][-1] + 1e-3


def test_bad_parameters(frame, tmp_path):
    with pytest.raises(ValueError, match="gradient_accumulation_steps"):
        make_estimator(LocalStore(str(tmp_path)), backward_passes_per_step=2).fit(frame)
    with pytest.raises(ValueError, match="optimizer must be set"):
        make_estimator(LocalStore(str(tmp_path)), optimizer=None).fit(frame)
