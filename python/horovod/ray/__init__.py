# SPDX-License-Identifier: Apache-2.0
"""Horovod on Ray: executors that start ranks as Ray actors, on a cluster that Ray manages."""

try:
    import ray as _ray  # noqa: F401
except ModuleNotFoundError as error:
    raise ImportError(f"horovod.ray needs Ray ({error}): pip install ray") from error

from horovod.ray.elastic import ElasticRayExecutor
from horovod.ray.runner import RayExecutor
from horovod.ray.worker import BaseHorovodWorker

__all__ = ["BaseHorovodWorker", "ElasticRayExecutor", "RayExecutor"]
