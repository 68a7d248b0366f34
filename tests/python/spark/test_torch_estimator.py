# SPDX-License-Identifier: Apache-2.0
"""TorchEstimator on real Spark: training, the model as a transformer, resuming, bad input."""

import sys

import cloudpickle
import numpy as np
import pytest

torch = pytest.importorskip("torch")

from horovod.spark.common.backend import LocalBackend, SparkBackend  # noqa: E402
from horovod.spark.common.dataset import DataError, make_batches  # noqa: E402
from horovod.spark.common.store import LocalStore  # noqa: E402
from horovod.spark.torch import TorchEstimator, TorchModel  # noqa: E402
from pyspark.ml.linalg import Vectors  # noqa: E402

cloudpickle.register_pickle_by_value(sys.modules[__name__])

ROWS = 400
WEIGHTS = np.array([1.0, -2.0, 0.5])


class Linear(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 1)

    def forward(self, x):
        return self.layer(x)


def make_estimator(store, **given):
    torch.manual_seed(0)
    model = Linear()
    defaults = {
        "model": model,
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.05),
        "loss": torch.nn.functional.mse_loss,
        "feature_cols": ["features"],
        "label_cols": ["label"],
        "batch_size": 20,
        "epochs": 4,
        "random_seed": 1,
        "partitions_per_process": 2,
        "verbose": 0,
        "store": store,
        "num_proc": 2,
    }
    if "backend" in given:
        del defaults["num_proc"]
    return TorchEstimator(**{**defaults, **given})


@pytest.fixture
def store(tmp_path):
    return LocalStore(str(tmp_path / "store"))


@pytest.fixture(scope="module")
def frame(spark):
    random = np.random.default_rng(0)
    x = random.normal(size=(ROWS, 3))
    y = x @ WEIGHTS + 1
    rows = [
        (Vectors.dense(a) if i % 2 else Vectors.sparse(3, range(3), a), float(b), i % 5 == 0, 1.0)
        for i, (a, b) in enumerate(zip(x, y, strict=True))
    ]
    return spark.createDataFrame(rows, ["features", "label", "is_val", "weight"]).cache()


def test_fit_transform_and_resume(frame, store, tmp_path):
    estimator = make_estimator(store, validation="is_val", run_id="run")
    model = estimator.fit(frame)
    history = model.getHistory()
    losses = [epoch["train"]["loss"] for epoch in history]
    assert len(losses) == 4 and losses[-1] < 0.1 * losses[0]
    assert history[-1]["validation"]["loss"] < history[0]["validation"]["loss"]
    found = model.transform(frame).select("label", "label__output").collect()
    error = np.mean([(row[0] - row[1]) ** 2 for row in found])
    assert len(found) == ROWS and error < 0.5

    model.save(str(tmp_path / "model"))
    again = TorchModel.load(str(tmp_path / "model"))
    assert again.setOutputCols(["p"]).transform(frame.limit(3)).columns[-1] == "p"

    # A second run of the same name begins where the first has ended.
    resumed = make_estimator(store, run_id="run", epochs=1).fit_on_parquet()
    assert resumed.getHistory()[0]["train"]["loss"] < 2 * losses[-1] + 1e-3
    state = torch.load(store.get_checkpoint_path("run"), weights_only=True)
    assert state["optimizer"]["param_groups"][0]["lr"] == pytest.approx(0.05)


def test_weights_metrics_and_local_backend(frame, store):
    def bias(output, label):
        return (output.reshape(-1) - label.reshape(-1)).mean()

    estimator = make_estimator(
        store,
        loss=lambda output, label: (output - label) ** 2,
        sample_weight_col="weight",
        metrics=[bias],
        validation=0.25,
        epochs=1,
        backend=LocalBackend(2),
    )
    history = estimator.fit(frame).getHistory()
    assert set(history[0]["train"]) == {"loss", "bias"} == set(history[0]["validation"])


def test_parameters(store):
    estimator = make_estimator(store)
    assert estimator.getBatchSize() == 20 and estimator.getShuffle() is True
    assert estimator.setBatchSize(5).setShufflingBufferSize(3).getBatchSize() == 5
    assert estimator.getShuffleBufferSize() == 3
    for name in estimator._table:
        camel = "".join(part.capitalize() for part in name.split("_"))
        assert callable(getattr(estimator, f"get{camel}"))
        assert callable(getattr(estimator, f"set{camel}"))
    with pytest.raises(TypeError, match="no parameter batchsize"):
        TorchEstimator(batchsize=1)


@pytest.mark.parametrize(
    "given,text",
    [
        ({"label_cols": ["nothing"]}, "no column nothing"),
        ({"feature_cols": ["features", "x"]}, "no column x"),
        ({"loss": None}, "loss must be set"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"backend": SparkBackend(2), "num_proc": 2}, "backend and num_proc"),
        ({"validation": 1.5}, "validation is 1.5"),
        ({"validation": "label"}, "must be an int or a boolean"),
        ({"input_shapes": [[-1, 3], [-1, 1]]}, "2 shapes for 1"),
        ({"reader_pool_type": "x"}, "reader_pool_type"),
    ],
)
def test_bad_parameters(frame, store, given, text):
    with pytest.raises(ValueError, match=text):
        make_estimator(store, **given).fit(frame)


def test_parameters_without_effect(store):
    given = dict.fromkeys(TorchEstimator._no_effect, "x")
    estimator = make_estimator(store, backend=LocalBackend(2), reader_pool_type="process", **given)
    with pytest.warns(UserWarning) as caught, pytest.raises(DataError):
        estimator.fit_on_parquet()
    names = {str(warning.message).split()[0].rstrip(":") for warning in caught}
    assert names == {*given, "reader_pool_type"}
    assert estimator._read_ahead("train", 10) > 0
    assert estimator.setReaderPoolType("dummy")._read_ahead("train", 10) == 0


def test_no_data(frame, store):
    with pytest.raises(DataError, match="there is no training data"):
        make_estimator(store).fit_on_parquet()
    with pytest.raises(DataError, match="has no rows"):
        make_estimator(store).fit(frame.filter("label > 1e9"))


def write(store, count, groups, lists=None):
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = store.get_train_data_path()
    store.fs.makedirs(path, exist_ok=True)
    table = pa.table({"x": list(range(count)), "v": lists or [[i, -i] for i in range(count)]})
    pq.write_table(table, f"{path}/a.parquet", row_group_size=-(-count // groups))
    return path


@pytest.mark.parametrize("groups", [1, 2, 5])
@pytest.mark.parametrize("workers", [0, 2])
def test_every_row_goes_to_one_rank(store, groups, workers):
    path = write(store, 20, groups)
    seen = []
    for rank in range(2):
        batches = make_batches(store, path, ["x", "v"], 2, 5, rank, 2, workers, shuffle=True)
        found = list(batches)
        assert len(found) == len(batches) == 5
        assert all((b["v"][:, 0] == b["x"]).all() and b["v"].shape == (2, 2) for b in found)
        seen.append({int(x) for b in found for x in b["x"]})
    if groups != 5:  # with five groups one rank has twelve rows, of which it reads ten
        assert seen[0] | seen[1] == set(range(20))
    assert not seen[0] & seen[1]


def test_files_without_rows_and_with_few(store):
    """Files of no, two and one row: each of three ranks gets one row."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = store.get_train_data_path()
    store.fs.makedirs(path)
    for name, values in (("a", []), ("b", [0, 1]), ("c", [2])):
        pq.write_table(pa.table({"x": pa.array(values, pa.int64())}), f"{path}/{name}.parquet")
    found = [next(iter(make_batches(store, path, ["x"], 1, 1, r, 3, 0)))["x"][0] for r in range(3)]
    assert sorted(found) == [0, 1, 2]


@pytest.mark.parametrize(
    "columns,text",
    [
        ({"features": [[1.0]] * 2}, "has no column label; it has: features"),
        ({"features": ["a", "b"], "label": [1.0, 2.0]}, "column features of .* is string"),
        ({"features": [[1.0]], "label": [1.0]}, "has 1 rows for 2 ranks"),
        (None, "can't be read"),
    ],
)
def test_data_that_does_not_fit(store, columns, text):
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = store.get_train_data_path()
    store.fs.makedirs(path)
    if columns is None:
        store.write_text(f"{path}/a.parquet", "this is not Parquet")
    else:
        pq.write_table(pa.table(columns), f"{path}/a.parquet")
    with pytest.raises(DataError, match=text):
        make_estimator(store, backend=LocalBackend(2)).fit_on_parquet()


def test_a_store_that_cannot_be_written(frame, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="the store can't be written at .*file/store"):
        make_estimator(LocalStore(str(tmp_path / "file" / "store"))).fit(frame)


def test_a_transformation_that_drops_a_column(store):
    path = write(store, 4, 1)
    batches = make_batches(store, path, ["x", "v"], 2, 1, 0, 1, 2, transform=lambda f: f[["x"]])
    with pytest.raises(DataError, match="there is no column v"):
        list(batches)


def test_rows_that_differ_in_length(store):
    path = write(store, 4, 1, [[1], [1, 2], [1], [1]])
    with pytest.raises(DataError, match="rows of 1 and of 2 values"):
        list(make_batches(store, path, ["v"], 2, 1, 0, 1, 2))
