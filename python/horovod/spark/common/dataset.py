# SPDX-License-Identifier: Apache-2.0
"""Training data: from a Spark DataFrame to Parquet in the store, and from there to batches.

Row groups are sharded by rank; if there are fewer row groups than ranks, rows are. Every rank gets
the same number of steps: a shard that is short begins again.
Start reading at prepare() and Batches.
"""

import itertools
import json
import math

import numpy as np

from horovod.data import AsyncDataLoaderMixin, BaseDataLoader

READ_AHEAD = 16  # batches
VALIDATION = "__horovod_validation__"


class DataError(ValueError):
    """The data does not fit what the estimator was told about it."""


# ---- on the driver ----


def check_columns(df, label_cols, feature_cols, sample_weight_col, validation):
    """The feature columns; DataError if a column is missing."""
    if not label_cols:
        raise DataError("label_cols must name at least one column")
    names = df.columns
    others = {sample_weight_col} | ({validation} if isinstance(validation, str) else set())
    if feature_cols is None:
        feature_cols = [n for n in names if n not in label_cols and n not in others]
    wanted = [*label_cols, *feature_cols, *(n for n in others if n is not None)]
    missing = [name for name in wanted if name not in names]
    if missing:
        raise DataError(
            f"the DataFrame has no column {', '.join(missing)}; it has: {', '.join(names)}"
        )
    return list(feature_cols)


def _to_plain(df, columns):
    """Vectors become arrays."""
    from pyspark.ml.functions import vector_to_array

    kinds = {field.name: field.dataType.typeName() for field in df.schema.fields}
    chosen = [
        vector_to_array(df[name]).alias(name) if "vector" in kinds[name] else df[name]
        for name in columns
    ]
    return df.select(*chosen)


def _split(df, validation, seed):
    """(training, validation or None)."""
    from pyspark.sql import functions

    if not validation:
        return df, None
    if isinstance(validation, str):
        kind = dict(df.dtypes)[validation]
        if kind not in ("int", "bigint", "smallint", "tinyint", "boolean"):
            raise DataError(
                f"the validation column {validation} is {kind}; it must be an int or a boolean"
            )
        flag = functions.col(validation).cast("int") > 0
        return df.filter(~flag), df.filter(flag)
    if not 0 <= validation < 1:
        raise DataError(f"validation is {validation}; it must be at least 0 and below 1")
    train, val = df.randomSplit([1 - validation, validation], seed=seed or 0)
    return train, val


def prepare(store, df, columns, validation, partitions, seed=None, dataset_idx=None):
    """Write the data of these columns to the store."""
    extra = [validation] if isinstance(validation, str) and validation not in columns else []
    train, val = _split(_to_plain(df, [*columns, *extra]), validation, seed)
    _write(store, train, columns, partitions, store.get_train_data_path(dataset_idx))
    if val is not None:
        _write(store, val, columns, partitions, store.get_val_data_path(dataset_idx))
    return val is not None


def _write(store, df, columns, partitions, path):
    try:
        store.write_text(store.get_data_metadata_path(path), "{}")
    except OSError as error:
        raise DataError(f"the store can't be written at {path}: {error}") from error
    plain = df.select(*columns).repartition(partitions)
    plain.write.mode("overwrite").parquet(store.get_full_path(path))
    rows = store.get_parquet_dataset(path).count_rows()
    store.write_text(store.get_data_metadata_path(path), json.dumps({"rows": rows}))


def _is_number(kind):
    import pyarrow as pa

    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        kind = kind.value_type
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)


def count_rows(store, path, what, columns, size, has_transform=False):
    """The number of rows; DataError if that many ranks can't train with these columns of it."""
    where = f"the {what} data at {store.get_full_path(path)}"
    if not store.exists(path):
        raise DataError(f"there is no {what} data at {store.get_full_path(path)}")
    try:
        found = store.get_parquet_dataset(path)
        rows, schema = found.count_rows(), found.schema
    except (OSError, ValueError) as error:
        raise DataError(f"{where} can't be read: {error}") from error
    if rows == 0:
        raise DataError(f"{where} has no rows")
    if rows < size:
        raise DataError(f"{where} has {rows} rows for {size} ranks; use fewer ranks")
    if has_transform:  # what it returns is checked on the ranks
        return rows
    missing = [name for name in columns if name not in schema.names]
    if missing:
        raise DataError(
            f"{where} has no column {', '.join(missing)}; it has: {', '.join(schema.names)}"
        )
    for name in columns:
        if not _is_number(schema.field(name).type):
            raise DataError(
                f"column {name} of {where} is {schema.field(name).type}; it must hold numbers, or "
                "lists of numbers"
            )
    return rows


# ---- on a rank ----


def to_numpy(column, name):
    """An array of rows; lists must all be of one length."""
    import pyarrow as pa

    column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks)
    if column.null_count:
        raise DataError(f"column {name} has rows without a value")
    if not (pa.types.is_list(column.type) or pa.types.is_large_list(column.type)):
        return np.asarray(column.to_numpy(zero_copy_only=False))
    lengths = np.diff(column.offsets.to_numpy())
    if len(lengths) and (lengths != lengths[0]).any():
        raise DataError(
            f"column {name} has rows of {lengths.min()} and of {lengths.max()} values; all must "
            "have the same number"
        )
    width = int(lengths[0]) if len(lengths) else 0
    return column.flatten().to_numpy(zero_copy_only=False).reshape(len(column), width)


class Batches(BaseDataLoader):
    """Dicts of arrays by column: `steps` batches of batch_size rows, from this rank's shard."""

    def __init__(self, store, path, columns, batch_size, steps, rank, size, **options):
        self._dataset = store.get_parquet_dataset(path)
        self._columns, self._batch_size, self._steps = columns, batch_size, steps
        self._rank, self._size = rank, size
        self._shuffle = options.get("shuffle", False)
        self._seed = options.get("seed") or 0
        self._transform = options.get("transform")
        self._is_cached = options.get("is_cached", False)
        self._cache = {}
        self._epoch = 0
        pieces = [
            group
            for fragment in self._dataset.get_fragments()
            for group in fragment.split_by_row_group()
            if group.count_rows() > 0
        ]
        self._by_rows = len(pieces) < size
        self._pieces = list(enumerate(pieces if self._by_rows else pieces[rank::size]))
        self._starts = [0, *itertools.accumulate(piece.count_rows() for piece in pieces)]

    def __len__(self):
        return self._steps

    def _read(self, number, piece):
        if number in self._cache:
            return self._cache[number]
        table = piece.to_table(columns=None if self._transform else self._columns)
        if self._transform is not None:
            import pyarrow as pa

            table = pa.Table.from_pandas(self._transform(table.to_pandas()), preserve_index=False)
        missing = [name for name in self._columns if name not in table.column_names]
        if missing:
            raise DataError(f"there is no column {', '.join(missing)} to train with")
        found = {name: to_numpy(table[name], name) for name in self._columns}
        if self._by_rows:
            first = (self._rank - self._starts[number]) % self._size
            found = {name: values[first :: self._size] for name, values in found.items()}
        if self._is_cached:
            self._cache[number] = found
        return found

    def _tables(self):
        """The row groups of the shard, again and again."""
        random = np.random.default_rng([self._seed, self._epoch, self._rank])
        while True:
            order = random.permutation(len(self._pieces)) if self._shuffle else self._pieces
            rows = 0
            for item in order:
                number, piece = self._pieces[item] if self._shuffle else item
                found = self._read(number, piece)
                count = len(next(iter(found.values())))
                rows += count
                if self._shuffle:
                    chosen = random.permutation(count)
                    found = {name: values[chosen] for name, values in found.items()}
                yield found
            if rows == 0:  # transformation_fn may have left none
                raise DataError(f"rank {self._rank} of {self._size} has no rows to train with")

    def _iterate(self):
        tables, rest = self._tables(), None
        self._epoch += 1
        for _ in range(self._steps):
            while rest is None or len(next(iter(rest.values()))) < self._batch_size:
                more = next(tables)
                rest = (
                    more
                    if rest is None
                    else {name: np.concatenate([rest[name], more[name]]) for name in rest}
                )
            yield {name: values[: self._batch_size] for name, values in rest.items()}
            rest = {name: values[self._batch_size :] for name, values in rest.items()}


class _Chunks(AsyncDataLoaderMixin, Batches):
    """Lists of batches, which a thread reads ahead: waking the reader for each one is slow."""

    def __init__(self, ahead, *args, **options):
        self._chunk = max(1, ahead // 2)
        super().__init__(2, *args, **options)

    def _iterate(self):
        batches = super()._iterate()
        while chunk := list(itertools.islice(batches, self._chunk)):
            yield chunk


class AsyncBatches(BaseDataLoader):
    """Batches, about `ahead` of which a thread has read before they are needed."""

    def __init__(self, ahead, *args, **options):
        self._chunks = _Chunks(ahead, *args, **options)

    def __len__(self):
        return len(self._chunks)

    def _iterate(self):
        for chunk in self._chunks:
            yield from chunk


def make_batches(store, path, columns, batch_size, steps, rank, size, ahead, **options):
    """Batches, of which a thread reads so many ahead; 0: no thread."""
    arguments = (store, path, columns, batch_size, steps, rank, size)
    return AsyncBatches(ahead, *arguments, **options) if ahead else Batches(*arguments, **options)


def steps_of(rows, batch_size, size, given=None):
    """Steps of an epoch, the same on all ranks."""
    return given or max(1, math.floor(rows / batch_size / size))


def plan_batches(plan, which, rank, size):
    """The batches of a plan of HorovodEstimator; which: train or val."""
    is_training = which == "train"
    return make_batches(
        plan["store"],
        plan["train_path" if is_training else "val_path"],
        plan["columns"],
        plan["batch_size" if is_training else "val_batch_size"],
        plan["steps" if is_training else "val_steps"],
        rank,
        size,
        plan["train_ahead" if is_training else "val_ahead"],
        shuffle=plan["shuffle"] and is_training,
        seed=plan["random_seed"],
        transform=plan["transformation_fn"],
        is_cached=plan["is_cached"],
    )
