# SPDX-License-Identifier: Apache-2.0
"""The actor that is a rank."""

import os
import socket
from collections.abc import Callable
from typing import Any

import ray

from horovod.ray import ray_logger


class BaseHorovodWorker:
    """One rank. Its `executable` is an instance of the user's class, or None."""

    executable: Any = None

    def __init__(self, world_rank: int = 0, world_size: int = 1) -> None:
        os.environ["HOROVOD_HOSTNAME"] = self.node_id()
        os.environ["HOROVOD_RANK"] = str(world_rank)
        os.environ["HOROVOD_SIZE"] = str(world_size)

    def node_id(self) -> str:
        """The id of the Ray node, as hexadecimal digits."""
        return ray.get_runtime_context().get_node_id()

    def hostname(self) -> str:
        """The name of this machine."""
        return socket.gethostname()

    def get_gpu_ids(self) -> list:
        """The GPUs that Ray has assigned to this actor."""
        return ray.get_runtime_context().get_accelerator_ids().get("GPU", [])

    def update_env_vars(self, env_vars: dict[str, str]) -> None:
        """Set variables of this process; values become text."""
        os.environ.update({name: str(value) for name, value in env_vars.items()})

    def env_vars(self) -> dict[str, str]:
        """The environment of this process, without the job's key."""
        return {name: value for name, value in os.environ.items() if name != "HOROVOD_KEY"}

    def set_queue(self, queue: Any) -> None:
        """Where ray_logger.log() of this rank puts its values; None: nowhere."""
        ray_logger.configure(queue)

    def start_executable(
        self,
        executable_cls: type | None = None,
        executable_args: list | None = None,
        executable_kwargs: dict | None = None,
    ) -> None:
        """Make the object that the functions given to execute() are called with."""
        if executable_cls is not None:
            self.executable = executable_cls(*(executable_args or []), **(executable_kwargs or {}))

    def execute(self, func: Callable) -> Any:
        """func(executable), in this process."""
        return func(self.executable)
