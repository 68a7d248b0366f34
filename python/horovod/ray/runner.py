# SPDX-License-Identifier: Apache-2.0
"""RayExecutor: ranks on a Ray cluster, a fixed number of them or a number that varies."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ray

from horovod.ray.adapter import Adapter, BaseParams
from horovod.ray.elastic_v2 import ElasticAdapter, ElasticParams
from horovod.ray.static import CallbackThread, Coordinator, StaticAdapter, StaticParams
from horovod.ray.worker import BaseHorovodWorker

__all__ = [
    "Adapter",
    "BaseHorovodWorker",
    "BaseParams",
    "Coordinator",
    "ElasticAdapter",
    "ElasticParams",
    "MiniSettings",
    "RayExecutor",
    "StaticAdapter",
    "StaticParams",
]


@dataclass
class MiniSettings:
    """The settings of a job; RayExecutor.create_settings() makes them."""

    nics: Any = None
    verbose: int = 1
    key: Any = None
    ssh_port: int | None = None
    ssh_identity_file: str | None = None
    timeout_s: int = 300
    placement_group_timeout_s: int = 100
    elastic: bool = False

    @property
    def start_timeout(self) -> Any:
        """A time limit that begins now."""
        from horovod.runner.common.util.timeout import Timeout

        return Timeout(self.timeout_s, "Timed out waiting for {activity}.")


def _complete(settings):
    """Settings of another kind lack what only Ray needs."""
    if settings is None:
        return MiniSettings()
    for name in ("placement_group_timeout_s", "timeout_s", "nics", "verbose"):
        if not hasattr(settings, name):
            setattr(settings, name, getattr(MiniSettings, name))
    return settings


class RayExecutor(Adapter):
    """Starts ranks as Ray actors and runs functions on them.

    settings: from create_settings(). Give num_workers, or num_hosts and num_workers_per_host, for a
    fixed number of ranks; or min_workers, and max_workers if there is a limit, for an elastic job.
    cpus_per_worker, use_gpu, gpus_per_worker: resources of a rank. use_current_placement_group: run
    in the placement group that this code runs in, if there is one. Elastic jobs only: reset_limit,
    cooldown_range (seconds, for nodes that failed), elastic_timeout (seconds to wait for workers),
    override_discovery (False: use settings.discovery).
    """

    @classmethod
    def create_settings(
        cls,
        timeout_s: int = 30,
        ssh_identity_file: str | None = None,
        ssh_str: str | None = None,
        placement_group_timeout_s: int = 100,
        nics: Any = None,
    ) -> MiniSettings:
        """Settings of a job: how long starting may take, and which interfaces to use.

        ssh_identity_file and ssh_str are accepted for old programs: nothing uses ssh.
        """
        return MiniSettings(
            ssh_identity_file=ssh_identity_file,
            nics={nics} if isinstance(nics, str) else nics,
            timeout_s=timeout_s,
            placement_group_timeout_s=placement_group_timeout_s,
        )

    def __init__(
        self,
        settings: Any = None,
        num_workers: int | None = None,
        num_hosts: int | None = None,
        num_workers_per_host: int = 1,
        cpus_per_worker: int = 1,
        use_gpu: bool = False,
        gpus_per_worker: int | None = None,
        use_current_placement_group: bool = True,
        min_workers: int | None = None,
        max_workers: int | None = None,
        reset_limit: int | None = None,
        cooldown_range: Any = None,
        elastic_timeout: int = 600,
        override_discovery: bool = True,
    ) -> None:
        self.settings = _complete(settings)
        if min_workers is not None and (num_workers is not None or num_hosts is not None):
            raise ValueError("num_workers and min_workers can't be set together: use one of them.")
        if max_workers is not None and min_workers is None:
            raise ValueError("max_workers is set, but min_workers is not.")
        # All in the order of the fields.
        resources = (cpus_per_worker, use_gpu, gpus_per_worker)
        self.params: StaticParams | ElasticParams
        if min_workers is not None:
            limits = (min_workers, max_workers, reset_limit)
            self.params = ElasticParams(
                *resources, *limits, cooldown_range, elastic_timeout, override_discovery
            )
        else:
            self.params = StaticParams(
                *resources,
                num_workers,
                num_hosts,
                num_workers_per_host,
                use_current_placement_group,
            )
        self._is_remote = ray.util.client.ray.is_connected()
        self._initialize_adapter()

    def _initialize_adapter(self):
        """With Ray Client this process is outside the cluster: the adapter then is an actor."""
        make = self.params.adapter
        if self._is_remote:
            make = ray.remote(num_cpus=0)(make).remote
        self.adapter = make(self.settings, **vars(self.params))

    def _call(self, name, *args, **kwargs):
        if self.adapter is None:
            raise RuntimeError("The executor has been shut down; call start() first.")
        method = getattr(self.adapter, name)
        if self._is_remote:
            return ray.get(method.remote(*args, **kwargs))
        return method(*args, **kwargs)

    def _call_back(self, callbacks, name, *args):
        """Callbacks are called in this process; an adapter elsewhere passes the values on."""
        if not callbacks or not self._is_remote:
            return self._call(name, *args, callbacks)
        thread = CallbackThread(callbacks)
        thread.start()
        try:
            return self._call(name, *args, [thread.queue.put])
        finally:
            thread.close()

    def _start(self, executable: tuple, variables: dict[str, str]) -> None:
        if self.adapter is None:
            self._initialize_adapter()
        self._call("start", *executable, variables)

    def _run(
        self, fn: Callable, args: list, kwargs: dict, callbacks: list[Callable] | None
    ) -> list:
        return self._call_back(callbacks, "run", fn, args, kwargs)

    def run_remote(self, fn: Callable, args: list | None = None, kwargs: dict | None = None) -> Any:
        """As run(), but returns object references at once, one per rank."""
        return self._call("run_remote", fn, args, kwargs)

    def execute(self, fn: Callable[[Any], Any], callbacks: list[Callable] | None = None) -> list:
        """fn(executable) on all workers; returns the results by rank."""
        return self._call_back(callbacks, "execute", fn)

    def execute_single(self, fn: Callable[[Any], Any]) -> Any:
        """fn(executable) on rank 0."""
        return self._call("execute_single", fn)

    def shutdown(self) -> None:
        """End the workers and give their resources back."""
        if self.adapter is None:
            return
        self._call("shutdown")
        if self._is_remote:
            ray.kill(self.adapter)
            self.adapter = None
