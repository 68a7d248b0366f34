# SPDX-License-Identifier: Apache-2.0
"""What the estimators of all frameworks do: check, write the data, train on ranks, make a model."""

import base64
import json
import os
import time
import warnings
from typing import Any

from pyspark.ml import Estimator, Model

from horovod.spark.common import dataset
from horovod.spark.common.backend import SparkBackend
from horovod.spark.common.params import COMMON, TableParams, camel, with_params

_UNSAVED = ("store", "backend")


class Saved(TableParams):
    """save() and load(): the parameters, pickled, without store and backend."""

    def save(self, path: str) -> None:
        """Write the parameters to a file."""
        import cloudpickle

        values = {k: v for k, v in self._values().items() if k not in _UNSAVED}
        text = base64.b64encode(cloudpickle.dumps(values)).decode("ascii")
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"class": type(self).__name__, "params": text}, file)

    @classmethod
    def load(cls, path: str) -> Any:
        """What save() has written. Load only files that you trust: they hold pickles."""
        import cloudpickle

        with open(path, encoding="utf-8") as file:
            read = json.load(file)
        if read["class"] != cls.__name__:
            raise ValueError(f"{path} holds a {read['class']}, not a {cls.__name__}")
        return cls(**cloudpickle.loads(base64.b64decode(read["params"])))


@with_params(COMMON)
class HorovodEstimator(Saved, Estimator):
    """Base class of the estimators."""

    _prefix = "run"
    # Accepted for scripts of Horovod 0.28.1: {name: why it has no effect}.
    _no_effect = {
        "compress_sparse_cols": "Parquet compresses vectors, sparse ones as well",
        "shuffle_buffer_size": "rows are shuffled within row groups; see shuffle",
        "mp_start_method": "a thread reads data, not a process",
        "transformation_edit_fields": "columns are taken as transformation_fn returns them",
        "transformation_removed_fields": "columns are taken as transformation_fn returns them",
        "continuous_cols": "only NVTabular has used it",
        "categorical_cols": "only NVTabular has used it",
        "data_module": "pyarrow.dataset reads data",
    }

    def __init__(self, **params: Any) -> None:
        super().__init__()
        self._init_params(params)

    def fit_on_parquet(self, params: dict | None = None, dataset_idx: int | None = None) -> Any:
        """Train on the Parquet data that is in the store already."""
        if params:
            return self.copy(params).fit_on_parquet(dataset_idx=dataset_idx)
        self._check()
        has_validation = bool(self.getValidation()) and self.getStore().is_parquet_dataset(
            self.getStore().get_val_data_path(dataset_idx)
        )
        return self._train(self._backend(), self._features(None), has_validation, dataset_idx)

    def _fit(self, dataset_frame):
        self._check()
        backend = self._backend()
        features = self._features(dataset_frame)
        columns = self._columns(features)
        has_validation = dataset.prepare(
            self.getStore(),
            dataset_frame,
            columns,
            self.getValidation(),
            backend.num_processes() * self.getPartitionsPerProcess(),
            self.getRandomSeed(),
        )
        return self._train(backend, features, has_validation, None)

    def _columns(self, features):
        extra = [self.getSampleWeightCol()] if self.getSampleWeightCol() else []
        return list(dict.fromkeys([*features, *self.getLabelCols(), *extra]))

    def _features(self, frame):
        if frame is not None:
            return dataset.check_columns(
                frame,
                self.getLabelCols(),
                self.getFeatureCols(),
                self.getSampleWeightCol(),
                self.getValidation(),
            )
        if not self.getFeatureCols() or not self.getLabelCols():
            raise dataset.DataError("fit_on_parquet() needs feature_cols and label_cols")
        return list(self.getFeatureCols())

    def _needed(self):
        return ("model", "store", "loss")

    def _warn_of_no_effect(self):
        for name, why in self._no_effect.items():
            if name not in self._table:
                continue
            value, default = self.getOrDefault(getattr(self, name)), self._table[name][0]
            if value is not default and value != default:
                warnings.warn(f"{name} has no effect: {why}", stacklevel=2)
        if self.getReaderPoolType() == "process":
            warnings.warn("reader_pool_type: a thread reads data, not a process", stacklevel=2)

    def _check(self):
        self._warn_of_no_effect()
        for name in self._needed():
            if getattr(self, f"get{camel(name)}")() is None:
                raise ValueError(f"{name} must be set")
        if self.getBackend() is not None and self.getNumProc() is not None:
            raise ValueError("backend and num_proc can't be set together: use one of them")
        for name in ("batch_size", "epochs"):
            value = getattr(self, f"get{camel(name)}")()
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} is {value!r}; it must be a positive number")
        if self.getReaderPoolType() not in ("thread", "process", "dummy"):
            raise ValueError(
                f"reader_pool_type is {self.getReaderPoolType()!r}; it must be thread, process or "
                "dummy"
            )

    def _backend(self):
        return self.getBackend() or SparkBackend(self.getNumProc())

    def _new_run_id(self):
        return self.getRunId() or f"{self._prefix}_{int(time.time())}"

    def _plan(self, backend, features, has_validation, dataset_idx):
        """What the ranks need to know, framework apart."""
        store, size = self.getStore(), backend.num_processes()
        train_path = store.get_train_data_path(dataset_idx)
        columns, has_transform = self._columns(features), self.getTransformationFn() is not None
        rows = dataset.count_rows(store, train_path, "training", columns, size, has_transform)
        plan = {
            "store": store,
            "features": features,
            "labels": list(self.getLabelCols()),
            "columns": columns,
            "weight": self.getSampleWeightCol(),
            "train_path": train_path,
            "val_path": store.get_val_data_path(dataset_idx) if has_validation else None,
            "batch_size": self.getBatchSize(),
            "val_batch_size": self.getValBatchSize() or self.getBatchSize(),
            "steps": dataset.steps_of(
                rows, self.getBatchSize(), size, self.getTrainStepsPerEpoch()
            ),
            "val_steps": 0,
            "run_id": self._new_run_id(),
        }
        for name in ("epochs", "verbose", "random_seed", "shuffle", "transformation_fn", "use_gpu"):
            plan[name] = getattr(self, f"get{camel(name)}")()
        plan["is_cached"] = self.getInmemoryCacheAll()
        if has_validation:
            val_rows = dataset.count_rows(
                store, plan["val_path"], "validation", columns, size, has_transform
            )
            plan["val_steps"] = dataset.steps_of(
                val_rows, plan["val_batch_size"], size, self.getValidationStepsPerEpoch()
            )
        plan["train_ahead"] = self._read_ahead("train", plan["steps"])
        plan["val_ahead"] = self._read_ahead("val", plan["val_steps"])
        return plan

    def _read_ahead(self, which, steps):
        """How many batches of train or val data a thread reads ahead; 0: none does."""
        workers = getattr(self, f"get{which.capitalize()}ReaderNumWorkers")()
        return dataset.READ_AHEAD if workers and self.getReaderPoolType() != "dummy" else 0

    def _last_checkpoint(self, run_id):
        """The bytes that an earlier run of this name has left, or None."""
        path = self.getStore().get_checkpoint_path(run_id)
        has_one = self.getRunId() and path is not None and self.getStore().exists(path)
        return self.getStore().read(path) if has_one else None

    def _train(self, backend, features, has_validation, dataset_idx):
        raise NotImplementedError

    def _run(self, backend, fn, plan, *args):
        from horovod.spark.common.backend import LocalBackend

        env = {} if isinstance(backend, (LocalBackend, SparkBackend)) else dict(os.environ)
        return backend.run(fn, args=(plan, *args), env=env)


class Predictor:
    """From a list of feature arrays to a list of output arrays. Sent without the loaded model."""

    _model: Any = None

    def __getstate__(self):
        return {name: value for name, value in vars(self).items() if name != "_model"}

    def __call__(self, arrays: list) -> list:
        """The outputs, each with a row per row."""
        if self._model is None:
            self._model = self._load()
        return self._predict(self._model, arrays)

    def _load(self):
        raise NotImplementedError

    def _predict(self, model, arrays):
        raise NotImplementedError


MODEL = {
    "model": (None, "the trained model"),
    "history": (None, "losses and metrics by epoch"),
    "feature_columns": (None, "columns that are inputs"),
    "label_columns": (None, "columns that were labels"),
    "output_cols": (None, "columns for the outputs; LABEL__output if None"),
    "run_id": (None, "the run that made the model"),
    "input_shapes": (None, "shapes of the inputs"),
    "batch_size": (1024, "rows of a batch of the transformation"),
}


@with_params(MODEL)
class HorovodModel(Saved, Model):
    """A trained model as a transformer: adds columns with the outputs."""

    def __init__(self, **params: Any) -> None:
        super().__init__()
        self._init_params(params)

    def getOutputCols(self) -> list[str]:  # noqa: N802
        """The columns that the transformation adds."""
        given = self.getOrDefault(self.output_cols)
        return given or [f"{name}__output" for name in self.getLabelColumns()]

    def _predictor(self):
        """A Predictor."""
        raise NotImplementedError

    def _transform(self, frame):
        from pyspark.ml.linalg import Vectors, VectorUDT
        from pyspark.sql.types import DoubleType, StructField, StructType

        missing = [name for name in self.getFeatureColumns() if name not in frame.columns]
        if missing:
            raise dataset.DataError(f"the DataFrame has no column {', '.join(missing)}")
        predictor, batch_size = self._predictor(), self.getBatchSize()
        features, outputs = self.getFeatureColumns(), self.getOutputCols()
        names = frame.columns
        widths = _probe(predictor, frame, features)
        kinds = [VectorUDT() if width > 1 else DoubleType() for width in widths]
        schema = StructType(
            [
                *frame.schema.fields,
                *(StructField(n, k) for n, k in zip(outputs, kinds, strict=True)),
            ]
        )

        def predict(rows):
            import itertools

            rows = iter(rows)
            while batch := list(itertools.islice(rows, batch_size)):
                found = predictor(_arrays(batch, features))
                for i, row in enumerate(batch):
                    added = [
                        Vectors.dense(values[i]) if width > 1 else float(values[i][0])
                        for values, width in zip(found, widths, strict=True)
                    ]
                    yield (*(row[name] for name in names), *added)

        return frame.sparkSession.createDataFrame(frame.rdd.mapPartitions(predict), schema)


def _arrays(rows, features):
    import numpy as np

    def plain(value):
        return value.toArray() if hasattr(value, "toArray") else value

    return [np.asarray([plain(row[name]) for row in rows], dtype=np.float32) for name in features]


def _probe(predictor, frame, features):
    """How many values each output has; scalars if there are no rows."""
    rows = frame.select(*features).take(1)
    if not rows:
        return [1]
    return [values.shape[1] for values in predictor(_arrays(rows, features))]


def _set_label_columns(self: Any, value: Any) -> Any:
    """Set the parameter label_columns; the name is that of Horovod 0.28.1."""
    return self._set(label_columns=value)


HorovodModel.setLabelColoumns = _set_label_columns
