# SPDX-License-Identifier: Apache-2.0
"""Horovod on Ray: executors that start ranks as Ray actors, on a cluster that Ray manages."""

try:
    import ray as _ray  # noqa: F401
except ModuleNotFoundError as error:
    from horovod.common.util import missing_framework

    raise missing_framework("horovod.ray", "Ray", "ray", error) from error

from horovod.ray.elastic import ElasticRayExecutor
from horovod.ray.runner import RayExecutor
from horovod.ray.worker import BaseHorovodWorker

__all__ = ["BaseHorovodWorker", "ElasticRayExecutor", "RayExecutor"]
