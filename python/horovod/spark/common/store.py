# SPDX-License-Identifier: Apache-2.0
"""Where estimators keep intermediate data, checkpoints and logs: any file system that fsspec knows.

`Store.create("s3://bucket/folder")` chooses by the prefix. Paths of a store are those of its file
system, without the protocol; get_full_path() adds it, for Spark.
"""

import contextlib
import os
import posixpath
import shutil
import tempfile
from collections.abc import Callable
from typing import Any

DATABRICKS = "DATABRICKS_RUNTIME_VERSION"


class Store:
    """Base class of stores, and the way to make one: Store.create(prefix_path)."""

    @classmethod
    def create(cls, prefix_path: str, *args: Any, **kwargs: Any) -> "Store":
        """The store for this prefix: HDFS, DBFS on Databricks, or whatever fsspec knows."""
        if HDFSStore.matches(prefix_path):
            return HDFSStore(prefix_path, *args, **kwargs)
        if DATABRICKS in os.environ and DBFSLocalStore.matches_dbfs(prefix_path):
            return DBFSLocalStore(prefix_path, *args, **kwargs)
        return FilesystemStore(prefix_path, *args, **kwargs)


class RemoteStore:
    """The paths of a run, for its ranks; see Store.to_remote()."""

    def __init__(self, **paths: Any) -> None:
        vars(self).update(paths)


class FilesystemStore(Store):
    """A store on a file system of fsspec.

    storage_options go to fsspec. save_runs: keep checkpoints and logs. The other arguments replace
    the default paths below the prefix.
    """

    def __init__(
        self,
        prefix_path: str,
        train_path: str | None = None,
        val_path: str | None = None,
        test_path: str | None = None,
        runs_path: str | None = None,
        save_runs: bool = True,
        storage_options: dict[str, Any] | None = None,
        checkpoint_filename: str | None = None,
        **kwargs: Any,
    ) -> None:
        import fsspec

        self.prefix_path = str(prefix_path)
        self.storage_options = dict(storage_options or {})
        try:
            self._fs, root = fsspec.core.url_to_fs(self.prefix_path, **self.storage_options)
        except (ImportError, ValueError) as error:
            raise ValueError(f"{self.prefix_path} can't be a store: {error}") from error
        self._root = root.rstrip("/")
        self._train_path = self._path(train_path, "intermediate_train_data")
        self._val_path = self._path(val_path, "intermediate_val_data")
        self._test_path = self._path(test_path, "intermediate_test_data")
        self._runs_path = self._path(runs_path, "runs")
        self._save_runs = save_runs
        self._checkpoint_filename = checkpoint_filename or "checkpoint"

    def _path(self, given, name):
        return self._fs._strip_protocol(given) if given else posixpath.join(self._root, name)

    @property
    def fs(self) -> Any:
        """The file system, of fsspec."""
        return self._fs

    # ---- data ----

    def is_parquet_dataset(self, path: str) -> bool:
        """Can this be read as Parquet?"""
        try:
            return self.get_parquet_dataset(path).count_rows() >= 0
        except (OSError, ValueError):
            return False

    def get_parquet_dataset(self, path: str) -> Any:
        """The pyarrow.dataset.Dataset at this path."""
        import pyarrow.dataset

        return pyarrow.dataset.dataset(
            self.get_localized_path(path), filesystem=self._fs, format="parquet"
        )

    def get_train_data_path(self, idx: int | None = None) -> str:
        """Where training data is."""
        return self._train_path if idx is None else f"{self._train_path}.{idx}"

    def get_val_data_path(self, idx: int | None = None) -> str:
        """Where validation data is."""
        return self._val_path if idx is None else f"{self._val_path}.{idx}"

    def get_test_data_path(self, idx: int | None = None) -> str:
        """Where test data is."""
        return self._test_path if idx is None else f"{self._test_path}.{idx}"

    def get_data_metadata_path(self, path: str) -> str:
        """What is known about the data at this path."""
        return f"{path.rstrip('/')}_cached_metadata.json"

    # ---- runs ----

    def saving_runs(self) -> bool:
        """Are checkpoints and logs kept?"""
        return self._save_runs

    def get_runs_path(self) -> str:
        """Where the runs are."""
        return self._runs_path

    def get_run_path(self, run_id: str) -> str:
        """Where this run is."""
        return posixpath.join(self._runs_path, run_id)

    def get_checkpoint_filename(self) -> str:
        """The name of checkpoints."""
        return self._checkpoint_filename

    def get_checkpoint_path(self, run_id: str) -> str | None:
        """The checkpoint of this run; None if runs are not saved."""
        if not self._save_runs:
            return None
        return posixpath.join(self.get_run_path(run_id), self._checkpoint_filename)

    def get_checkpoints(self, run_id: str, suffix: str = ".ckpt") -> list[str]:
        """All checkpoints of this run with this suffix."""
        folder = self.get_run_path(run_id)
        if not self._fs.exists(folder):
            return []
        names = self._fs.ls(folder, detail=False)
        return sorted(name for name in names if name.endswith(suffix))

    def get_logs_subdir(self) -> str:
        """The name of the folder of logs."""
        return "logs"

    def get_logs_path(self, run_id: str) -> str | None:
        """The logs of this run; None if runs are not saved."""
        if not self._save_runs:
            return None
        return posixpath.join(self.get_run_path(run_id), self.get_logs_subdir())

    # ---- files ----

    def exists(self, path: str) -> bool:
        """Is there such a file or folder?"""
        return self._fs.exists(self.get_localized_path(path))

    def read(self, path: str) -> bytes:
        """The bytes of a file."""
        with self._fs.open(self.get_localized_path(path), "rb") as file:
            return file.read()

    def write(self, path: str, data: bytes) -> None:
        """Write a file; its folder is made."""
        path = self.get_localized_path(path)
        self._fs.makedirs(posixpath.dirname(path), exist_ok=True)
        with self._fs.open(path, "wb") as file:
            file.write(data)

    def write_text(self, path: str, text: str) -> None:
        """Write a file of text."""
        self.write(path, text.encode("utf-8"))

    def read_serialized_keras_model(
        self, ckpt_path: str, model: Any = None, custom_objects: dict | None = None
    ) -> bytes:
        """The bytes of a Keras checkpoint."""
        return self.read(ckpt_path)

    def get_full_path(self, path: str) -> str:
        """With the protocol, as Spark wants it."""
        return self._fs.unstrip_protocol(self.get_localized_path(path))

    def get_localized_path(self, path: str) -> str:
        """Without the protocol."""
        return self._fs._strip_protocol(path)

    def get_local_output_dir_fn(self, run_id: str) -> Callable:
        """A context manager for a folder of this machine, in which a run writes."""

        @contextlib.contextmanager
        def local_run_path():
            folder = tempfile.mkdtemp(prefix=f"horovod-{run_id}-")
            try:
                yield folder
            finally:
                shutil.rmtree(folder, ignore_errors=True)

        return local_run_path

    def sync_fn(self, run_id: str) -> Callable[[str], None]:
        """A function that copies such a folder into the run."""
        target = self.get_run_path(run_id)

        def sync(local_folder: str) -> None:
            for root, _, names in os.walk(local_folder):
                for name in names:
                    path = os.path.join(root, name)
                    below = os.path.relpath(path, local_folder).replace(os.sep, "/")
                    with open(path, "rb") as file:
                        self.write(posixpath.join(target, below), file.read())

        return sync

    def to_remote(self, run_id: str, dataset_idx: int | None) -> RemoteStore:
        """What ranks need of this store."""
        return RemoteStore(
            store=self,
            saving_runs=self._save_runs,
            runs_path=self._runs_path,
            run_path=self.get_run_path(run_id),
            train_data_path=self.get_train_data_path(dataset_idx),
            val_data_path=self.get_val_data_path(dataset_idx),
            checkpoint_path=self.get_checkpoint_path(run_id),
            logs_path=self.get_logs_path(run_id),
            checkpoint_filename=self._checkpoint_filename,
            logs_subdir=self.get_logs_subdir(),
            get_local_output_dir=self.get_local_output_dir_fn(run_id),
            sync=self.sync_fn(run_id),
        )


LocalStore = FilesystemStore


class HDFSStore(FilesystemStore):
    """A store on HDFS, by libhdfs: "hdfs://host:port/path", "hdfs:///path" or a plain path."""

    @staticmethod
    def matches(prefix_path: str) -> bool:
        """Is this an address of HDFS?"""
        return str(prefix_path).startswith("hdfs://")

    def __init__(
        self,
        prefix_path: str,
        host: str | None = None,
        port: int | None = None,
        user: str | None = None,
        kerb_ticket: str | None = None,
        driver: str = "libhdfs",
        extra_conf: dict[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        options = dict(kwargs.pop("storage_options", None) or {})
        given = {
            "host": host,
            "port": port,
            "user": user,
            "kerb_ticket": kerb_ticket,
            "extra_conf": extra_conf,
        }
        options.update({name: value for name, value in given.items() if value is not None})
        if not self.matches(prefix_path):
            prefix_path = f"hdfs://{prefix_path}"
        super().__init__(prefix_path, storage_options=options, **kwargs)


class DBFSLocalStore(FilesystemStore):
    """A store on DBFS, by its local mount: "/dbfs/...", "dbfs:/..." or "file:///dbfs/..."."""

    @staticmethod
    def matches_dbfs(path: str) -> bool:
        """Is this a path of DBFS?"""
        return str(path).startswith(("dbfs:/", "/dbfs/", "file:/dbfs/", "file:///dbfs/"))

    @staticmethod
    def normalize_path(path: str) -> str:
        """The path below the mount."""
        if path.startswith("dbfs://"):
            raise ValueError(f"{path}: DBFS paths have one slash: dbfs:/..., or /dbfs/...")
        for prefix in ("dbfs:", "file:///dbfs", "file:/dbfs"):
            if path.startswith(f"{prefix}/"):
                return f"/dbfs{path[len(prefix) :]}"
        return path

    def __init__(self, prefix_path: str, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("checkpoint_filename", "checkpoint.tf")
        super().__init__(self.normalize_path(prefix_path), *args, **kwargs)

    def get_full_path(self, path: str) -> str:
        """As Spark knows it on Databricks."""
        path = self.normalize_path(self.get_localized_path(path))
        return f"dbfs:{path[len('/dbfs') :]}" if path.startswith("/dbfs/") else f"file://{path}"
