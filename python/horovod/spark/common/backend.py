# SPDX-License-Identifier: Apache-2.0
"""Where the ranks of an estimator run: in Spark tasks, or on this machine."""

import os
from collections.abc import Callable
from typing import Any


class Backend:
    """Runs a function on ranks."""

    def run(
        self,
        fn: Callable,
        args: tuple = (),
        kwargs: dict[str, Any] | None = None,
        env: dict[str, str] | None = None,
    ) -> list:
        """fn(*args, **kwargs) on all ranks; the results by rank."""
        raise NotImplementedError

    def num_processes(self) -> int:
        """How many ranks there are."""
        raise NotImplementedError


class SparkBackend(Backend):
    """Ranks in Spark tasks, by horovod.spark.run(); run_kwargs are its other arguments."""

    def __init__(
        self, num_proc: int | None = None, env: dict[str, str] | None = None, **run_kwargs: Any
    ) -> None:
        self._num_proc = num_proc
        self._env = env
        self._run_kwargs = run_kwargs

    def run(
        self,
        fn: Callable,
        args: tuple = (),
        kwargs: dict[str, Any] | None = None,
        env: dict[str, str] | None = None,
    ) -> list:
        """fn(*args, **kwargs) in Spark tasks; the results by rank."""
        import horovod.spark

        full = {**(os.environ if self._env is None else self._env), **(env or {})}
        full.pop("CUDA_VISIBLE_DEVICES", None)  # of the driver, and of no use elsewhere
        return horovod.spark.run(
            fn, args, kwargs, num_proc=self.num_processes(), env=full, **self._run_kwargs
        )

    def num_processes(self) -> int:
        """num_proc, else Spark's default parallelism."""
        from horovod.spark.runner import _active_context

        return self._num_proc or _active_context().defaultParallelism


class LocalBackend(Backend):
    """Ranks on this machine, by horovod.run()."""

    def __init__(
        self, num_proc: int | None = None, env: dict[str, str] | None = None, **run_kwargs: Any
    ) -> None:
        self._num_proc = num_proc or 1
        self._env = env
        self._run_kwargs = run_kwargs

    def run(
        self,
        fn: Callable,
        args: tuple = (),
        kwargs: dict[str, Any] | None = None,
        env: dict[str, str] | None = None,
    ) -> list:
        """fn(*args, **kwargs) on this machine; the results by rank."""
        import horovod

        full = {**(os.environ if self._env is None else self._env), **(env or {})}
        return horovod.run(fn, args, kwargs, num_proc=self._num_proc, env=full, **self._run_kwargs)

    def num_processes(self) -> int:
        """How many ranks there are."""
        return self._num_proc
