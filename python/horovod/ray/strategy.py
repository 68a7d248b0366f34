# SPDX-License-Identifier: Apache-2.0
"""Where the actors of a job are placed: packed on few nodes, or spread over a number of nodes."""

from typing import Any

import ray
from ray.util.placement_group import (
    get_current_placement_group,
    placement_group,
    remove_placement_group,
)
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy


def create_placement_group(resources_per_bundle, num_bundles, pg_timeout, pg_strategy):
    """A group that is ready; TimeoutError if Ray does not have the resources in time."""
    group = placement_group([dict(resources_per_bundle)] * num_bundles, strategy=pg_strategy)
    if not group.wait(pg_timeout):
        told = describe_resources()
        remove_placement_group(group)
        raise TimeoutError(
            f"Placement group creation timed out after {pg_timeout} s. {num_bundles} bundles of "
            f"{dict(resources_per_bundle)} ({pg_strategy}) are needed. {told}"
        )
    return group


def describe_resources() -> str:
    """What Ray has."""
    return (
        f"Available resources: {ray.available_resources()}; resources of the cluster: "
        f"{ray.cluster_resources()}."
    )


class BaseStrategy:
    """Creates the actors; subclasses say how many there are and in which bundles."""

    placement_group: Any = None
    workers: list

    def __init__(self, settings, use_gpu, cpus_per_worker, gpus_per_worker):
        self.settings = settings
        self.use_gpu = use_gpu
        self.cpus_per_worker = cpus_per_worker
        self.gpus_per_worker = gpus_per_worker or 1
        self.workers = []
        self._is_group_ours = False

    @property
    def num_workers(self) -> int:
        """How many ranks there are."""
        raise NotImplementedError

    def _resources(self, workers):
        needed = {"CPU": self.cpus_per_worker * workers}
        if self.use_gpu:
            needed["GPU"] = self.gpus_per_worker * workers
        return needed

    def _make_group(self, workers_per_bundle, bundles, kind):
        self.placement_group = create_placement_group(
            self._resources(workers_per_bundle),
            bundles,
            self.settings.placement_group_timeout_s,
            kind,
        )
        self._is_group_ours = True

    def _actor(self, cls, bundle, rank):
        remote = ray.remote(cls).options(
            num_cpus=self.cpus_per_worker,
            num_gpus=self.gpus_per_worker if self.use_gpu else 0,
            scheduling_strategy=PlacementGroupSchedulingStrategy(
                self.placement_group, placement_group_bundle_index=bundle
            ),
        )
        return remote.remote(world_rank=rank, world_size=self.num_workers)

    def create_workers(self, cls: type) -> list:
        """The actors."""
        raise NotImplementedError

    def describe(self) -> str:
        """What the actors need and where, for an error."""
        return (
            f"{self.num_workers} actors of {self._resources(1)} are needed in a placement group "
            f"of {self.placement_group.bundle_specs}. {describe_resources()}"
        )

    def shutdown(self) -> None:
        """Give the resources back; a group that others have made stays."""
        if self.placement_group is not None and self._is_group_ours:
            remove_placement_group(self.placement_group)
        self.placement_group = None
        self.workers = []


class PGStrategy(BaseStrategy):
    """Workers packed on as few nodes as possible, or in the placement group we are in."""

    def __init__(
        self,
        settings,
        num_workers,
        use_gpu,
        cpus_per_worker,
        gpus_per_worker,
        placement_group=None,
        force_create_placement_group=False,
    ):
        super().__init__(settings, use_gpu, cpus_per_worker, gpus_per_worker)
        self._num_workers = num_workers
        if not force_create_placement_group:
            self.placement_group = placement_group or get_current_placement_group()

    @property
    def num_workers(self) -> int:
        """How many ranks there are."""
        return self._num_workers

    def create_workers(self, cls: type) -> list:
        """The actors, in any bundle of the group."""
        if self.placement_group is None:
            self._make_group(1, self.num_workers, "PACK")
        self.workers = [self._actor(cls, -1, rank) for rank in range(self.num_workers)]
        return self.workers


class ColocatedStrategy(BaseStrategy):
    """The same number of workers on each of several nodes."""

    def __init__(
        self, settings, num_hosts, num_workers_per_host, use_gpu, cpus_per_worker, gpus_per_worker
    ):
        super().__init__(settings, use_gpu, cpus_per_worker, gpus_per_worker)
        self.num_hosts = num_hosts
        self.num_workers_per_host = num_workers_per_host

    @property
    def num_workers(self) -> int:
        """How many ranks there are."""
        return self.num_hosts * self.num_workers_per_host

    def create_workers(self, cls: type) -> list:
        """The actors, node by node."""
        self._make_group(self.num_workers_per_host, self.num_hosts, "STRICT_SPREAD")
        self.workers = [
            self._actor(cls, rank // self.num_workers_per_host, rank)
            for rank in range(self.num_workers)
        ]
        return self.workers
