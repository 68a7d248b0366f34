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


class Adapter(ABC):
    """Starts workers and runs functions on them."""

    @abstractmethod
    def start(
        self,
        executable_cls: type | None = None,
        executable_args: list | None = None,
        executable_kwargs: dict | None = None,
        extra_env_vars: dict[str, str] | None = None,
    ) -> None:
        """Start the workers, each with an instance of executable_cls."""

    @abstractmethod
    def execute(self, fn: Callable[[Any], Any], callbacks: list[Callable] | None = None) -> list:
        """fn(executable) on all workers; the results by rank."""

    @abstractmethod
    def run(
        self,
        fn: Callable,
        args: list | None = None,
        kwargs: dict | None = None,
        callbacks: list[Callable] | None = None,
    ) -> list:
        """fn(*args, **kwargs) on all workers; the results by rank."""

    @abstractmethod
    def run_remote(self, fn: Callable, args: list | None = None, kwargs: dict | None = None) -> Any:
        """As run(), but returns object references at once."""

    @abstractmethod
    def execute_single(self, fn: Callable[[Any], Any]) -> Any:
        """fn(executable) on rank 0."""

    @abstractmethod
    def shutdown(self) -> None:
        """End the workers and give their resources back."""
