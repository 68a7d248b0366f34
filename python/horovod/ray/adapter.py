# SPDX-License-Identifier: Apache-2.0
"""What a RayExecutor does its work with: the static or the elastic adapter."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass
class BaseParams:
    """Resources of a worker."""

    cpus_per_worker: int = 1
    use_gpu: bool = False
    gpus_per_worker: int | None = None

    def __post_init__(self) -> None:
        if self.gpus_per_worker and not self.use_gpu:
            raise ValueError("gpus_per_worker is set, but use_gpu is False. use_gpu must be True.")
        if self.use_gpu and isinstance(self.gpus_per_worker, int) and self.gpus_per_worker < 1:
            raise ValueError(f"gpus_per_worker must be >= 1: Got {self.gpus_per_worker}.")
        if self.cpus_per_worker < 0:
            raise ValueError(f"cpus_per_worker must be >= 0: Got {self.cpus_per_worker}.")
        if self.use_gpu and self.gpus_per_worker is None:
            self.gpus_per_worker = 1

    @property
    def elastic(self) -> bool:
        """Is the number of workers variable?"""
        return False


class Adapter(ABC):
    """Starts workers and runs functions on them: the methods of a RayExecutor."""

    def start(
        self,
        executable_cls: type | None = None,
        executable_args: list | None = None,
        executable_kwargs: dict | None = None,
        extra_env_vars: dict[str, str] | None = None,
    ) -> None:
        """Start the workers. Each makes an instance of executable_cls, for execute()."""
        self._start((executable_cls, executable_args, executable_kwargs), extra_env_vars or {})

    def _start(self, executable: tuple, variables: dict[str, str]) -> None:
        raise NotImplementedError

    @abstractmethod
    def execute(self, fn: Callable[[Any], Any], callbacks: list[Callable] | None = None) -> list:
        """fn(executable) on all workers; the results by rank."""

    def run(
        self,
        fn: Callable,
        args: list | None = None,
        kwargs: dict | None = None,
        callbacks: list[Callable] | None = None,
    ) -> list:
        """fn(*args, **kwargs) on all workers; returns the results by rank.

        callbacks: called here with every dict that rank 0 gives to horovod.ray.ray_logger.log().
        An elastic job returns the results of the first min_workers ranks.
        """
        return self._run(fn, list(args or ()), dict(kwargs or {}), callbacks)

    def _run(
        self, fn: Callable, args: list, kwargs: dict, callbacks: list[Callable] | None
    ) -> list:
        raise NotImplementedError

    @abstractmethod
    def run_remote(self, fn: Callable, args: list | None = None, kwargs: dict | None = None) -> Any:
        """As run(), but returns object references at once."""

    @abstractmethod
    def execute_single(self, fn: Callable[[Any], Any]) -> Any:
        """fn(executable) on rank 0."""

    @abstractmethod
    def shutdown(self) -> None:
        """End the workers and give their resources back."""
