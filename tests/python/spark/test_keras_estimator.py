# SPDX-License-Identifier: Apache-2.0
"""KerasEstimator on real Spark, with Keras 3 on PyTorch, or Keras 2 where that is installed."""

import os
import sys

os.environ.setdefault("KERAS_BACKEND", "torch")

import cloudpickle  # noqa: E402
import numpy as np  # noqa: E402
import pytest  # noqa: E402

keras = pytest.importorskip("keras")

from horovod.spark.common.store import LocalStore  # noqa: E402
from horovod.spark.keras import KerasEstimator, KerasModel  # noqa: E402

cloudpickle.register_pickle_by_value(sys.modules[__name__])
IS_KERAS2 = keras.__version__.startswith("2.")


STEPS = 3  # of an epoch, at least


class Counts(keras.callbacks.Callback):
    """Writes what the optimizer has behind it when the first batch has been trained with."""

    def __init__(self, path):
        super().__init__()
        self._path = path

    def on_train_batch_end(self, batch, logs=None):
        if batch == 0:
            optimizer = self.model.optimizer
            with open(self._path, "w", encoding="ascii") as file:
                file.write(f"{int(optimizer.iterations)} {float(optimizer.learning_rate)}")


def make_estimator(store, **given):
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1)])
    defaults = {
        "model": model,
        "optimizer": keras.optimizers.SGD(0.05, momentum=0.1),
        "loss": "mse",
        "feature_cols": ["features"],
        "label_cols": ["label"],
        "batch_size": 20,
        "epochs": 3,
        "random_seed": 1,
        "partitions_per_process": 1,
        "backward_passes_per_step": 2 if IS_KERAS2 else 1,
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
    saving = keras.callbacks.ModelCheckpoint("weights.{epoch}.weights.h5", save_weights_only=True)
    estimator = make_estimator(
        store,
        validation=0.2,
        run_id="run",
        checkpoint_callback=saving,
        label_shapes=[[-1, 1]],
    )
    model = estimator.fit(frame)
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
    assert store.exists(f"{store.get_run_path('run')}/weights.3.weights.h5")
    counted = tmp_path / "iterations"
    resumed = make_estimator(store, run_id="run", epochs=1, callbacks=[Counts(str(counted))])
    resumed = resumed.fit_on_parquet().getHistory()
    assert resumed["loss"][0] < 2 * history["loss"][-1] + 1e-3
    # The optimizer goes on, too: three epochs of steps were behind it.
    before, rate = counted.read_text().split()
    assert int(before) >= 3 * STEPS and float(rate) == pytest.approx(0.1)


def test_bad_parameters(frame, tmp_path):
    if not IS_KERAS2:
        with pytest.raises(ValueError, match="gradient_accumulation_steps"):
            make_estimator(LocalStore(str(tmp_path)), backward_passes_per_step=2).fit(frame)
    with pytest.raises(ValueError, match="optimizer must be set"):
        make_estimator(LocalStore(str(tmp_path)), optimizer=None).fit(frame)
