# SPDX-License-Identifier: Apache-2.0
"""Elastic jobs on Ray: on each node an actor runs an agent of horovodrun, which starts the ranks.

The launcher in C decides who is a member (docs/elastic.md). Nodes that Ray adds get an actor, and
the ranks on it join; when Ray loses a node, its actor dies, and the job goes on without its ranks.
Start reading at ElasticAdapter.run().
"""

import itertools
import logging
import math
import os
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from horovod.ray.adapter import Adapter, BaseParams
from horovod.ray.static import CallbackThread
from horovod.ray.utils import driver_address
from horovod.runner import api
from horovod.runner.elastic.discovery import HostDiscovery
from horovod.runner.gloo_run import _DiscoveryFile
from horovod.runner.launcher import find_horovodrun
from horovod.runner.relay import RANK_PYTHON, Relay

END_S = 10  # for actors that were told to return
PATIENCE_S = 30  # until a warning says that an actor has not started

_log = logging.getLogger(__name__)


class RayHostDiscovery(HostDiscovery):
    """The nodes of the Ray cluster that live, with as many slots as their resources allow.

    cpus_per_slot and gpus_per_slot are older names of cpus_per_worker and gpus_per_worker.
    """

    def __init__(
        self,
        use_gpu: bool = False,
        cpus_per_worker: int = 1,
        gpus_per_worker: int = 1,
        cpus_per_slot: int | None = None,
        gpus_per_slot: int | None = None,
    ) -> None:
        self.use_gpu = use_gpu
        self.cpus_per_worker = cpus_per_worker if cpus_per_slot is None else cpus_per_slot
        self.gpus_per_worker = gpus_per_worker if gpus_per_slot is None else gpus_per_slot

    def _slots(self, resources):
        cpus = resources.get("CPU", 0)
        slots = int(cpus // self.cpus_per_worker) if self.cpus_per_worker else int(cpus > 0)
        if self.use_gpu:
            slots = min(slots, int(resources.get("GPU", 0) // self.gpus_per_worker))
        return slots

    def find_nodes(self) -> dict[str, tuple[str, int]]:
        """By node id: the address of the node and its slots; nodes without a slot are left out."""
        found = {}
        for node in ray.nodes():
            slots = self._slots(node.get("Resources") or {})
            if node["Alive"] and slots > 0:
                found[node["NodeID"]] = (node["NodeManagerAddress"], slots)
        return found

    def find_available_hosts_and_slots(self) -> dict[str, int]:
        """By address: the slots of the nodes there."""
        hosts: dict[str, int] = {}
        for address, slots in self.find_nodes().values():
            hosts[address] = hosts.get(address, 0) + slots
        return hosts


class TestDiscovery(RayHostDiscovery):
    """Pretends that nodes come and go, to try a program out: now and then it hides one or more."""

    __test__ = False  # for pytest

    def __init__(
        self,
        min_hosts: int,
        max_hosts: int,
        change_frequency_s: int,
        use_gpu: bool = False,
        cpus_per_worker: int = 1,
        gpus_per_worker: int = 1,
        verbose: bool = True,
        _graceful: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(use_gpu, cpus_per_worker, gpus_per_worker, **kwargs)
        self._min_hosts = min_hosts
        self._max_hosts = max_hosts
        self._change_frequency_s = change_frequency_s
        self._verbose = verbose
        self._hidden: set[str] = set()
        self._changed_at: float | None = None

    def find_nodes(self) -> dict[str, tuple[str, int]]:
        """As the base class, without the nodes that are hidden now."""
        found = super().find_nodes()
        now = time.monotonic()
        if self._changed_at is None or now - self._changed_at >= self._change_frequency_s:
            self._changed_at = now
            most = min(self._max_hosts, len(found))
            count = random.randint(min(self._min_hosts, most), most)
            shown = set(random.sample(sorted(found), count))
            self._hidden = set(found) - shown
            if self._verbose:
                print(f"TestDiscovery shows {count} of {len(found)} nodes.")
        return {node: place for node, place in found.items() if node not in self._hidden}


@dataclass
class ElasticParams(BaseParams):
    """An elastic job: between min_workers and max_workers ranks."""

    min_workers: int = 1
    max_workers: int | None = None
    reset_limit: int | None = None
    cooldown_range: Any = None
    elastic_timeout: int = 600
    override_discovery: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.min_workers, int) or self.min_workers < 1:
            raise ValueError(f"min_workers must be a positive number: Got {self.min_workers!r}.")
        if self.max_workers is not None and self.max_workers < self.min_workers:
            raise ValueError(
                f"max_workers is {self.max_workers}, but must be at least min_workers "
                f"{self.min_workers}."
            )

    @property
    def elastic(self) -> bool:
        """Is the number of workers variable?"""
        return True

    @property
    def adapter(self) -> type:
        """The class that runs such a job."""
        return ElasticAdapter


class AgentActor:
    """Holds the resources of some ranks on a node, and runs the agent that starts them."""

    def serve(self, addresses: str, key: bytes, name: str, variables: dict[str, str]) -> None:
        """Until the driver says that the job is over."""
        from horovod.runner import relay

        gpus = ray.get_runtime_context().get_accelerator_ids().get("GPU", [])
        env = {**os.environ, **variables}
        if gpus:
            env["CUDA_VISIBLE_DEVICES"] = ",".join(str(gpu) for gpu in gpus)
        relay.serve(addresses, key, name, {"node": ray.get_runtime_context().get_node_id()}, env)


class AgentDiscovery(HostDiscovery):
    """The launcher's hosts: an actor on each node that the user's discovery shows."""

    def __init__(self, relay, params, discovery, variables):
        self._relay = relay
        self._params = params
        self._discovery = discovery
        self._variables = variables
        self._numbers = itertools.count()
        self._agents = {}  # by node id: (name, actor, reference, slots)
        self._patience = {}  # by name of an agent that has not registered: when to warn
        self._lock = threading.Lock()

    def _shown(self):
        """By node id: slots."""
        if isinstance(self._discovery, RayHostDiscovery):
            found = {node: slots for node, (_, slots) in self._discovery.find_nodes().items()}
        else:  # the user's own, which knows addresses or names
            hosts = self._discovery.find_available_hosts_and_slots()
            found = {}
            for node in ray.nodes():
                names = (node["NodeManagerAddress"], node["NodeManagerHostname"], node["NodeID"])
                slots = next((hosts[name] for name in names if name in hosts), 0)
                if node["Alive"] and slots:
                    found[node["NodeID"]] = slots
        most = self._params.max_workers
        return {node: min(slots, most or slots) for node, slots in found.items()}

    def _resources(self, slots):
        params = self._params
        gpus = (params.gpus_per_worker or 0) * slots if params.use_gpu else 0
        return {"num_cpus": params.cpus_per_worker * slots, "num_gpus": gpus}

    def _start(self, node, slots):
        name = f"node-{node[:12]}-{next(self._numbers)}"
        actor = (
            ray.remote(AgentActor)
            .options(
                **self._resources(slots),
                scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False),
                max_restarts=0,
            )
            .remote()
        )
        reference = actor.serve.remote(
            self._relay.addresses, self._relay.key, name, self._variables
        )
        self._agents[node] = (name, actor, reference, slots)
        self._patience[name] = time.monotonic() + PATIENCE_S

    def _warn(self, node):
        name, _, _, slots = self._agents[node]
        if time.monotonic() > self._patience.get(name, math.inf):
            del self._patience[name]
            _log.warning(
                "No actor has started on node %s in %d s. It needs %s, which something else on "
                "this node may be using.",
                node,
                PATIENCE_S,
                self._resources(slots),
            )

    def _drop(self, node, is_lost):
        name, actor, _, _ = self._agents.pop(node)
        if is_lost:
            self._relay.set_lost(name)
        else:
            self._relay.release(name)
        return actor

    def find_available_hosts_and_slots(self):
        with self._lock:
            shown = self._shown()
            ended = {node for node, agent in self._agents.items() if _has_ended(agent[2])}
            for node in ended:
                self._drop(node, is_lost=True)
            found = {}
            for node in shown:
                if node not in self._agents:
                    self._start(node, shown[node])
                name, _, _, slots = self._agents[node]
                if self._relay.find(name) is not None:
                    found[name] = slots
                else:
                    self._warn(node)
            return found

    def close(self):
        with self._lock:
            agents = [self._agents[node] for node in self._agents]
            for node in list(self._agents):
                self._drop(node, is_lost=False)
        ray.wait([a[2] for a in agents], num_returns=len(agents), timeout=END_S) if agents else None
        for agent in agents:
            ray.kill(agent[1])


def _has_ended(reference):
    done, _ = ray.wait([reference], timeout=0)
    return bool(done)


def _call_with_queue(call, address, queue):
    """What a rank runs that has something to log: it connects to Ray."""
    import cloudpickle

    from horovod.ray import ray_logger

    ray.init(address=address, log_to_driver=False, logging_level="error")
    ray_logger.configure(cloudpickle.loads(queue))
    fn, args, kwargs = call
    return fn(*args, **kwargs)


class ElasticAdapter(Adapter):
    """See RayExecutor, whose methods these are."""

    def __init__(
        self,
        settings,
        min_workers=1,
        max_workers=None,
        use_gpu=False,
        cpus_per_worker=1,
        gpus_per_worker=None,
        override_discovery=True,
        reset_limit=None,
        elastic_timeout=600,
        cooldown_range=None,
    ):
        self.settings = settings
        self.params = ElasticParams(
            min_workers=min_workers,
            max_workers=max_workers,
            use_gpu=use_gpu,
            cpus_per_worker=cpus_per_worker,
            gpus_per_worker=gpus_per_worker,
            override_discovery=override_discovery,
            reset_limit=reset_limit,
            elastic_timeout=elastic_timeout,
            cooldown_range=cooldown_range,
        )
        self._executable = (None, [], {})
        self._variables: dict[str, str] = {}
        self._is_started = False

    def _start(self, executable: tuple, variables: dict[str, str]) -> None:
        """Prepare the job; the ranks start with run()."""
        params = self.params
        discovery = getattr(self.settings, "discovery", None)
        if params.override_discovery or discovery is None:
            discovery = RayHostDiscovery(
                params.use_gpu, params.cpus_per_worker, params.gpus_per_worker or 1
            )
        self._discovery = discovery
        cls, args, kwargs = executable
        self._executable = (cls, args or [], kwargs or {})
        self._variables = {name: str(value) for name, value in variables.items()}
        self._is_started = True

    def _options(self, relay, found):
        params = self.params
        options = {
            "-np": params.min_workers,
            "--min-np": params.min_workers,
            "--max-np": params.max_workers,
            "--elastic-timeout": params.elastic_timeout,
            "--reset-limit": params.reset_limit,
            "--rsh-agent": relay.program,
            "--host-discovery-script": found.command,
        }
        line = [find_horovodrun(), "--gloo"]
        for name, value in options.items():
            if value is not None:
                line += [name, str(value)]
        if params.cooldown_range:
            line += ["--blacklist-cooldown-range", *map(str, params.cooldown_range)]
        if getattr(self.settings, "nics", None):
            line += ["--network-interfaces", ",".join(sorted(self.settings.nics))]
        return line

    def _run_job(self, call, callbacks):
        if not self._is_started:
            raise RuntimeError("The executor has not been started; call start() first.")
        thread = CallbackThread(callbacks) if callbacks else None
        relay = Relay([driver_address(getattr(self.settings, "nics", None))])
        agents = AgentDiscovery(relay, self.params, self._discovery, self._variables)
        found = None
        try:
            if thread is not None:  # otherwise a rank need not import Ray, which takes a second
                import cloudpickle

                thread.start()
                address = ray.get_runtime_context().gcs_address
                call = (_call_with_queue, (call, address, cloudpickle.dumps(thread.queue)), {})
            found = _DiscoveryFile(agents)
            line = self._options(relay, found)
            return api._run(line, call, self.params.min_workers, RANK_PYTHON, {})
        finally:
            if found is not None:
                found.close()
            agents.close()
            relay.close()
            if thread is not None:
                thread.close()

    def _run(
        self, fn: Callable, args: list, kwargs: dict, callbacks: list[Callable] | None
    ) -> list:
        return self._run_job((fn, tuple(args), kwargs), callbacks)

    def execute(self, fn: Callable[[Any], Any], callbacks: list[Callable] | None = None) -> list:
        """fn(executable) on all workers; the results of the first min_workers ranks."""
        cls, args, kwargs = self._executable

        def call():
            return fn(cls(*args, **kwargs) if cls is not None else None)

        return self._run_job((call, (), {}), callbacks)

    def run_remote(self, fn: Callable, args: list | None = None, kwargs: dict | None = None) -> Any:
        """Elastic jobs have no fixed workers to refer to."""
        raise NotImplementedError("run_remote() is not supported in elastic jobs: use run()")

    def execute_single(self, fn: Callable[[Any], Any]) -> Any:
        """Elastic jobs have no fixed workers to refer to."""
        raise NotImplementedError("execute_single() is not supported in elastic jobs: use run()")

    def shutdown(self) -> None:
        """Nothing is left after run()."""
        self._is_started = False
