# SPDX-License-Identifier: Apache-2.0
"""Where the ranks of an estimator run: in Spark tasks, or on this machine."""

import os
from collections.abc import Callable
from typing import Any


class Backend:
    """Runs a function on ranks."""

    _env: dict[str, str] | None = None  # None: the variables of this process

    def run(
        self,
        fn: Callable,
        args: tuple = (),
        kwargs: dict[str, Any] | None = None,
        env: dict[str, str] | None = None,
    ) -> list:
        """fn(*args, **kwargs) on all ranks; the results by rank.

        env: further variables of the ranks; they win over those of the backend.
        """
        return self._run(fn, args, kwargs, {**self._variables(), **(env or {})})

    def _variables(self) -> dict[str, str]:
        return dict(os.environ if self._env is None else self._env)

    def _run(self, fn: Callable, args: tuple, kwargs: dict[str, Any] | None, env: dict) -> list:
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

    def _run(self, fn: Callable, args: tuple, kwargs: dict[str, Any] | None, env: dict) -> list:
        import horovod.spark

        env.pop("CUDA_VISIBLE_DEVICES", None)  # of the driver, and of no use elsewhere
        return horovod.spark.run(
            fn, args, kwargs, num_proc=self.num_processes(), env=env, **self._run_kwargs
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

    def _run(self, fn: Callable, args: tuple, kwargs: dict[str, Any] | None, env: dict) -> list:
        import horovod

        return horovod.run(fn, args, kwargs, num_proc=self._num_proc, env=env, **self._run_kwargs)

    def num_processes(self) -> int:
        """How many ranks there are."""
        return self._num_proc
