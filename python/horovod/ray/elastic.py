# SPDX-License-Identifier: Apache-2.0
"""ElasticRayExecutor, an older name: RayExecutor(min_workers=...) does the same."""

import warnings
from collections.abc import Callable
from typing import Any

from horovod.ray.elastic_v2 import ElasticAdapter, RayHostDiscovery, TestDiscovery
from horovod.runner.elastic.settings import ElasticSettings

__all__ = ["ElasticRayExecutor", "RayHostDiscovery", "TestDiscovery"]


class ElasticRayExecutor:
    """An elastic job on Ray. Deprecated: use RayExecutor with min_workers.

    settings: from create_settings(). env_vars: variables of the ranks. override_discovery: find
    nodes by Ray, even if settings.discovery is set.
    """

    @staticmethod
    def create_settings(
        min_num_proc: int = 1,
        max_num_proc: int | None = None,
        reset_limit: int | None = None,
        elastic_timeout: int = 600,
        timeout_s: int = 30,
        ssh_identity_file: str = "~/ray_bootstrap_key.pem",
        nics: Any = None,
        min_np: int | None = None,
        max_np: int | None = None,
        **kwargs: Any,
    ) -> ElasticSettings:
        """Settings of an elastic job; min_np and max_np are older names."""
        for old, new, value in (
            ("min_np", "min_num_proc", min_np),
            ("max_np", "max_num_proc", max_np),
        ):
            if value is not None:
                warnings.warn(f"{old} is deprecated, use {new} instead", DeprecationWarning)
        return ElasticSettings(
            discovery=None,
            min_num_proc=min_num_proc if min_np is None else min_np,
            max_num_proc=max_num_proc if max_np is None else max_np,
            elastic_timeout=elastic_timeout,
            reset_limit=reset_limit,
            ssh_identity_file=ssh_identity_file,
            nics=nics,
            start_timeout=timeout_s,
            **kwargs,
        )

    def __init__(
        self,
        settings: ElasticSettings,
        use_gpu: bool = False,
        cpus_per_slot: int = 1,
        gpus_per_slot: int | None = None,
        env_vars: dict[str, str] | None = None,
        override_discovery: bool = True,
    ) -> None:
        warnings.warn(
            "ElasticRayExecutor is deprecated, use RayExecutor(min_workers=...) instead",
            DeprecationWarning,
        )
        self.settings = settings
        self._variables = env_vars
        self._adapter = ElasticAdapter(
            settings,
            min_workers=settings.min_num_proc,
            max_workers=settings.max_num_proc,
            use_gpu=use_gpu,
            cpus_per_worker=cpus_per_slot,
            gpus_per_worker=gpus_per_slot,
            override_discovery=override_discovery,
            reset_limit=settings.reset_limit,
            elastic_timeout=settings.elastic_timeout,
            cooldown_range=settings.cooldown_range,
        )

    def start(self) -> None:
        """Prepare the job."""
        self._adapter.start(extra_env_vars=self._variables)

    def run(self, worker_fn: Callable, callbacks: list[Callable] | None = None) -> list:
        """worker_fn() on all ranks; the results of the first min_num_proc ranks."""
        return self._adapter.run(worker_fn, callbacks=callbacks)
