# SPDX-License-Identifier: Apache-2.0
"""Stores: paths, files, Parquet, and which one a prefix means."""

import pytest
from horovod.spark.common.store import DBFSLocalStore, FilesystemStore, LocalStore, Store


def test_paths(tmp_path):
    store = Store.create(str(tmp_path))
    assert isinstance(store, FilesystemStore) and LocalStore is FilesystemStore
    assert store.get_train_data_path() == f"{tmp_path}/intermediate_train_data"
    assert store.get_val_data_path(3) == f"{tmp_path}/intermediate_val_data.3"
    assert store.get_checkpoint_path("r") == f"{tmp_path}/runs/r/checkpoint"
    assert store.get_logs_path("r") == f"{tmp_path}/runs/r/logs"
    assert store.get_full_path(store.get_runs_path()) == f"file://{tmp_path}/runs"
    assert LocalStore(str(tmp_path), save_runs=False).get_checkpoint_path("r") is None


@pytest.mark.parametrize("prefix", ["", "memory://"])
def test_files(tmp_path, prefix):
    store = Store.create(f"{prefix}{tmp_path}")
    path = f"{store.get_run_path('r')}/a.ckpt"
    assert not store.exists(path) and store.get_checkpoints("r") == []
    store.write_text(path, "text")
    assert store.exists(path) and store.read(path) == b"text"
    assert store.get_checkpoints("r") == [path]
    with store.get_local_output_dir_fn("r")() as folder:
        with open(f"{folder}/b", "wb") as file:
            file.write(b"2")
        store.sync_fn("r")(folder)
    assert store.read(f"{store.get_run_path('r')}/b") == b"2"


def test_parquet(tmp_path):
    import pyarrow
    import pyarrow.parquet

    store = LocalStore(str(tmp_path))
    assert not store.is_parquet_dataset(store.get_train_data_path())
    (tmp_path / "intermediate_train_data").mkdir()
    table = pyarrow.table({"x": [1, 2, 3]})
    pyarrow.parquet.write_table(table, tmp_path / "intermediate_train_data" / "a.parquet")
    assert store.is_parquet_dataset(store.get_train_data_path())
    assert store.get_parquet_dataset(store.get_train_data_path()).count_rows() == 3


def test_databricks(monkeypatch):
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "15.4")
    for path in ("dbfs:/tmp/x", "/dbfs/tmp/x", "file:/dbfs/tmp/x", "file:///dbfs/tmp/x"):
        store = Store.create(path)
        assert isinstance(store, DBFSLocalStore)
        assert store.get_checkpoint_path("r") == "/dbfs/tmp/x/runs/r/checkpoint.tf"
        assert store.get_full_path(store.get_runs_path()) == "dbfs:/tmp/x/runs"
    with pytest.raises(ValueError, match="one slash"):
        DBFSLocalStore("dbfs://tmp/x")


def test_a_prefix_that_nothing_knows():
    with pytest.raises(ValueError, match="nowhere"):
        Store.create("nowhere://x")
