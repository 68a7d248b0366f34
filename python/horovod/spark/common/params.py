# SPDX-License-Identifier: Apache-2.0
"""Parameters of estimators and their models, with getters and setters in the way of Spark ML."""

from typing import Any

from pyspark.ml.param import Param, Params

# name: (default, what it is)
COMMON = {
    "num_proc": (None, "number of ranks; exclusive with backend"),
    "model": (None, "the model to train"),
    "optimizer": (None, "the optimizer"),
    "loss": (None, "loss function, or a list with one per output"),
    "loss_weights": (None, "weights of the losses"),
    "sample_weight_col": (None, "column with the weight of each row"),
    "metrics": ([], "functions of outputs and labels to report"),
    "feature_cols": (None, "columns that are inputs; all others than labels if None"),
    "label_cols": (None, "columns that are labels"),
    "continuous_cols": (None, "columns with continuous values"),
    "categorical_cols": (None, "columns with categories"),
    "validation": (None, "fraction of rows, or a column that marks rows, for validation"),
    "gradient_compression": (None, "compression of gradients"),
    "compress_sparse_cols": (
        False,
        "accepted; sparse vectors are stored as Parquet compresses them",
    ),
    "batch_size": (32, "rows of a batch on each rank"),
    "val_batch_size": (None, "rows of a batch of validation; batch_size if None"),
    "epochs": (1, "number of epochs"),
    "verbose": (1, "0: print nothing"),
    "callbacks": ([], "callbacks of the framework"),
    "random_seed": (None, "seed of the ranks and of shuffling"),
    "shuffle_buffer_size": (None, "accepted; rows are shuffled within row groups"),
    "shuffle": (True, "shuffle row groups and rows each epoch"),
    "partitions_per_process": (10, "files of the intermediate data per rank"),
    "run_id": (None, "name of the run; made from the time if None"),
    "train_steps_per_epoch": (None, "steps of an epoch, if not all"),
    "validation_steps_per_epoch": (None, "steps of validation, if not all"),
    "transformation_fn": (None, "function of a pandas DataFrame to apply to each row group"),
    "transformation_edit_fields": (None, "accepted"),
    "transformation_removed_fields": (None, "accepted"),
    "train_reader_num_workers": (2, "0: read in the thread that trains"),
    "val_reader_num_workers": (2, "0: read in the thread that trains"),
    "reader_pool_type": ("thread", "thread, process or dummy"),
    "label_shapes": (None, "shapes of the labels"),
    "inmemory_cache_all": (False, "keep the shard of each rank in memory after the first epoch"),
    "use_gpu": (True, "use GPUs if there are any"),
    "mp_start_method": (None, "accepted"),
    "backward_passes_per_step": (1, "batches per update"),
    "store": (None, "where intermediate data and runs are kept"),
    "backend": (None, "where ranks run; exclusive with num_proc"),
}

# Names that differ from the usual camel case, in addition to it.
ODD_SETTERS = {
    "shuffle_buffer_size": "setShufflingBufferSize",
    "train_reader_num_workers": "setTrainReaderNumWorker",
    "val_reader_num_workers": "setValReaderNumWorker",
    "inmemory_cache_all": "setInMemoryCacheAll",
}


def camel(name: str) -> str:
    """`batch_size` as in getBatchSize."""
    return "".join(part.capitalize() for part in name.split("_"))


def _getter(name):
    def get(self: Any) -> Any:
        return self.getOrDefault(getattr(self, name))

    get.__name__ = get.__qualname__ = f"get{camel(name)}"
    get.__doc__ = f"The parameter {name}."
    return get


def _setter(name, setter_name):
    def set_(self: Any, value: Any) -> Any:
        return self._set(**{name: value})

    set_.__name__ = set_.__qualname__ = setter_name
    set_.__doc__ = f"Set the parameter {name}; returns the object itself."
    return set_


def with_params(table):
    """Decorates a class of Params: adds the parameters of the table, their getters and setters."""

    def decorate(cls):
        cls._table = {**getattr(cls, "_table", {}), **table}
        for name, (_, text) in table.items():
            setattr(cls, name, Param(Params._dummy(), name, text))
            if f"get{camel(name)}" not in vars(cls):  # the class may have its own
                setattr(cls, f"get{camel(name)}", _getter(name))
            for setter in {f"set{camel(name)}", ODD_SETTERS.get(name, f"set{camel(name)}")}:
                setattr(cls, setter, _setter(name, setter))
        return cls

    return decorate


class TableParams(Params):
    """Sets defaults and given values by the class's table; unknown names are errors."""

    _table: dict[str, tuple[Any, str]] = {}

    def _init_params(self, given):
        unknown = sorted(set(given) - set(self._table))
        if unknown:
            raise TypeError(
                f"{type(self).__name__} has no parameter {', '.join(unknown)}; it has: "
                f"{', '.join(sorted(self._table))}"
            )
        self._setDefault(**{name: default for name, (default, _) in self._table.items()})
        self._set(**given)

    def _set(self, **values):
        for name, value in values.items():
            self._paramMap[getattr(self, name)] = value
        return self

    def _setDefault(self, **values):  # noqa: N802
        for name, value in values.items():
            self._defaultParamMap[getattr(self, name)] = value
        return self

    def _values(self):
        return {name: self.getOrDefault(getattr(self, name)) for name in self._table}
