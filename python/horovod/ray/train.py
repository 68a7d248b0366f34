# SPDX-License-Identifier: Apache-2.0
"""Horovod on Ray Train, whose current version has no HorovodTrainer of its own any more.

Ray Train starts the workers and, if one fails, starts all of them again as FailureConfig allows.
This module gives them ranks and a rendezvous, which the process that controls the workers serves.
Start reading at HorovodBackend.on_start().
"""

import contextlib
import os
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import ray
from ray.train.backend import Backend, BackendConfig
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

from horovod.common.basics import HorovodBasics
from horovod.ray.runner import MiniSettings
from horovod.ray.static import Coordinator

__all__ = ["HorovodConfig", "HorovodTrainer"]


@dataclass
class HorovodConfig(MiniSettings, BackendConfig):
    """How the ranks of a trainer connect.

    nics: the interfaces to use; None: each machine uses its address on the route. The other fields
    are accepted for programs written for ray.train.horovod; Ray Train has its own settings for
    these things.
    """

    ssh_str: str | None = None

    @property
    def backend_cls(self) -> type:
        """What prepares the workers."""
        return HorovodBackend

    @property
    def train_func_context(self) -> Callable:
        """What the training function runs in."""
        return _leave_at_the_end


@contextlib.contextmanager
def _leave_at_the_end() -> Iterator[None]:
    """A rank whose function has ended leaves the job: others that wait for it fail at once."""
    basics = HorovodBasics(__file__)
    try:
        yield
    finally:
        if basics.is_initialized():
            basics.shutdown()


def _place():
    return socket.gethostname(), ray.get_runtime_context().get_node_id()


def _set_variables(variables):
    os.environ.update(variables)


class HorovodBackend(Backend):
    """Gives the workers of Ray Train their ranks. Ray makes one in the controlling process."""

    share_cuda_visible_devices = True

    def __init__(self) -> None:
        self._coordinator: Coordinator | None = None

    def on_start(self, worker_group: Any, backend_config: BackendConfig) -> None:
        """New workers, at the beginning and after a failure: their ranks are those of Ray Train."""
        self._stop()
        self._coordinator = coordinator = Coordinator(backend_config)
        for rank, (host, node) in enumerate(worker_group.execute(_place)):
            coordinator.register(host, node, rank)
        common = coordinator.establish_rendezvous()
        ray.get(
            [
                worker_group.execute_single_async(rank, _set_variables, {**common, **variables})
                for rank, variables in coordinator.finalize_registration().items()
            ]
        )

    def on_shutdown(self, worker_group: Any, backend_config: BackendConfig) -> None:
        """The workers are about to end."""
        self._stop()

    def _stop(self):
        if self._coordinator is not None:
            self._coordinator.stop()
            self._coordinator = None


class HorovodTrainer(DataParallelTrainer):
    """Runs a training function on the workers of Ray Train, each of which is a rank.

    The function calls hvd.init(). horovod_config: a HorovodConfig. All other arguments are those of
    Ray's DataParallelTrainer: train_loop_config, scaling_config, run_config, datasets,
    dataset_config and so on.
    """

    def __init__(
        self,
        train_loop_per_worker: Callable,
        *,
        horovod_config: HorovodConfig | None = None,
        **arguments: Any,
    ) -> None:
        super().__init__(
            train_loop_per_worker, backend_config=horovod_config or HorovodConfig(), **arguments
        )
