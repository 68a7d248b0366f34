# SPDX-License-Identifier: Apache-2.0
"""A fixed number of ranks, each a Ray actor that lasts from start() to shutdown()."""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from horovod.ray.adapter import Adapter, BaseParams
from horovod.ray.strategy import ColocatedStrategy, PGStrategy
from horovod.ray.utils import detect_nics, driver_address, map_blocking, nics_to_env_var
from horovod.ray.worker import BaseHorovodWorker
from horovod.runner.common.util.hosts import HostInfo, get_host_assignments
from horovod.runner.gloo_run import create_run_env_vars, create_slot_env_vars
from horovod.runner.http.http_server import RendezvousServer

GRACE_S = 5  # for the other ranks to fail by themselves after one has failed

_log = logging.getLogger(__name__)


@dataclass
class StaticParams(BaseParams):
    """Either num_workers, or num_hosts with num_workers_per_host."""

    num_workers: int | None = None
    num_hosts: int | None = None
    num_workers_per_host: int = 1
    use_current_placement_group: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.num_workers is None) == (self.num_hosts is None):
            raise ValueError("Either one of `num_workers` or `num_hosts` must be set.")
        for name in ("num_workers", "num_hosts", "num_workers_per_host"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or value < 1):
                raise ValueError(f"{name} must be a positive number: Got {value!r}.")

    @property
    def adapter(self) -> type:
        """The class that runs such a job."""
        return StaticAdapter


class Coordinator:
    """Knows which rank is on which node, and serves the rendezvous of the ranks."""

    def __init__(self, settings: Any) -> None:
        self.settings = settings
        self.rendezvous: RendezvousServer | None = None
        self._nodes: dict[str, list[int]] = {}  # ranks by node, nodes in the order of their ranks
        self._hostnames: dict[str, str] = {}

    @property
    def world_size(self) -> int:
        """How many ranks have registered."""
        return sum(len(ranks) for ranks in self._nodes.values())

    @property
    def hostnames(self) -> set[str]:
        """The machines of the ranks."""
        return set(self._hostnames.values())

    @property
    def node_id_string(self) -> str:
        """The nodes with their slots: "A:2,B:2"."""
        return ",".join(f"{node}:{len(ranks)}" for node, ranks in self._nodes.items())

    def register(self, hostname: str, node_id: str, world_rank: int) -> None:
        """This rank is there."""
        self._nodes.setdefault(node_id, []).append(world_rank)
        self._hostnames[node_id] = hostname

    def finalize_registration(self) -> dict[int, dict[str, str]]:
        """By rank, the variables that say where it is."""
        infos = [HostInfo(node, len(ranks)) for node, ranks in self._nodes.items()]
        slots = iter(get_host_assignments(infos, 1)) if infos else iter(())
        found = {}
        for ranks in self._nodes.values():
            for rank, slot in zip(ranks, slots, strict=False):
                slot.rank = rank
                found[rank] = create_slot_env_vars(slot)
        return found

    def establish_rendezvous(self) -> dict[str, str]:
        """Serve the rendezvous; returns the variables by which ranks find it, and its key."""
        nics = detect_nics(self.settings)
        address = driver_address(nics)
        self.rendezvous = RendezvousServer(getattr(self.settings, "verbose", 0), address=address)
        port = self.rendezvous.start()
        return {
            **create_run_env_vars(address, nics, port),
            **nics_to_env_var(nics),
            "HOROVOD_KEY": self.rendezvous.key.hex(),
        }

    def stop(self) -> None:
        """The rendezvous ends."""
        if self.rendezvous is not None:
            self.rendezvous.stop()
            self.rendezvous = None


class CallbackThread(threading.Thread):
    """Calls functions with every value that rank 0 logs."""

    def __init__(self, callbacks):
        super().__init__(daemon=True, name="horovod-callbacks")
        from ray.util.queue import Queue

        self._callbacks = callbacks
        self._is_over = threading.Event()
        # On the driver's own node: Ray would also choose a node that has just died, and notices
        # that only when the node's heartbeats have been missing for a while.
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
        self.queue = Queue(actor_options={"num_cpus": 0, "scheduling_strategy": here})

    def run(self):
        from ray.util.queue import Empty

        while True:
            is_last = self._is_over.is_set()
            try:
                value = self.queue.get(timeout=0.1)
            except Empty:
                if is_last:
                    return
                continue
            for callback in self._callbacks:
                try:
                    callback(value)
                except Exception:  # the job does not depend on it
                    _log.exception("a callback failed with %r", value)

    def close(self):
        """Returns when all values have been passed on."""
        self._is_over.set()
        self.join()
        self.queue.shutdown()


def wait_for_results(refs, grace_s=GRACE_S):
    """(results, None), or (None, first error); an error does not wait for ranks that hang."""
    waiting, error = list(refs), None
    while waiting and error is None:
        done, waiting = ray.wait(waiting)
        try:
            ray.get(done)
        except Exception as trouble:
            error = trouble
    if error is None:
        return ray.get(list(refs)), None
    _, left = ray.wait(list(refs), num_returns=len(refs), timeout=grace_s)
    return None, (_root_cause(refs, left, error), bool(left))


def _root_cause(refs, left, first):
    """The error that is not about another rank's, if there is one."""
    for ref in refs:
        if ref in left:
            continue
        try:
            ray.get(ref)
        except Exception as error:
            cause = getattr(error, "cause", None) or error.__cause__ or error
            if type(cause).__name__ != "HorovodInternalError":
                return error
    return first


class StaticAdapter(Adapter):
    """See RayExecutor, whose methods these are."""

    def __init__(
        self,
        settings,
        num_workers=None,
        num_hosts=None,
        num_workers_per_host=1,
        cpus_per_worker=1,
        use_gpu=False,
        gpus_per_worker=None,
        use_current_placement_group=True,
    ):
        self.settings = settings
        self.num_workers = num_workers
        self.num_hosts = num_hosts
        self.num_workers_per_host = num_workers_per_host
        self.cpus_per_worker = cpus_per_worker
        self.use_gpu = use_gpu
        self.gpus_per_worker = gpus_per_worker
        self.use_current_placement_group = use_current_placement_group
        self.workers: list = []
        self.strategy = None
        self.coordinator: Coordinator | None = None

    def _create_strategy(self):
        resources = (self.use_gpu, self.cpus_per_worker, self.gpus_per_worker)
        if self.num_workers is not None:
            return PGStrategy(
                self.settings,
                self.num_workers,
                *resources,
                force_create_placement_group=not self.use_current_placement_group,
            )
        return ColocatedStrategy(
            self.settings, self.num_hosts, self.num_workers_per_host, *resources
        )

    def _start(self, executable: tuple, variables: dict[str, str]) -> None:
        if self.workers:
            raise RuntimeError("The executor has been started already; call shutdown() first.")
        self.strategy = self._create_strategy()
        try:
            self._start_workers(variables)
            map_blocking(lambda w: w.start_executable.remote(*executable), self.workers)
        except BaseException:
            self.shutdown()
            raise

    def _start_workers(self, extra_env_vars):
        actors = self.strategy.create_workers(BaseHorovodWorker)
        self.workers = list(actors)
        timeout_s = max(self.settings.timeout_s, self.settings.placement_group_timeout_s)
        try:
            nodes = ray.get([actor.node_id.remote() for actor in actors], timeout=timeout_s)
        except ray.exceptions.GetTimeoutError as error:
            raise TimeoutError(
                f"The workers have not started in {timeout_s} s (timeout_s or "
                f"placement_group_timeout_s, whichever is longer). {self.strategy.describe()}"
            ) from error
        order = list(dict.fromkeys(nodes))
        pairs = sorted(zip(nodes, actors, strict=True), key=lambda pair: order.index(pair[0]))
        self.workers = [actor for _, actor in pairs]
        names = map_blocking(lambda w: w.hostname.remote(), self.workers)
        self.coordinator = Coordinator(self.settings)
        for rank, ((node, _), name) in enumerate(zip(pairs, names, strict=True)):
            self.coordinator.register(name, node, rank)
        places = self.coordinator.finalize_registration()
        common = {**self.coordinator.establish_rendezvous(), **extra_env_vars}
        ray.get(
            [w.update_env_vars.remote({**common, **places[r]}) for r, w in enumerate(self.workers)]
        )
        if self.use_gpu:
            self._share_gpus([node for node, _ in pairs])

    def _share_gpus(self, nodes):
        """Every worker of a node sees all GPUs that the workers of this node were given."""
        ids = map_blocking(lambda w: w.get_gpu_ids.remote(), self.workers)
        by_node: dict[str, set] = {}
        for node, found in zip(nodes, ids, strict=True):
            by_node.setdefault(node, set()).update(str(gpu) for gpu in found)
        # Of equal length in alphabetical order, so that 10 comes after 9.
        visible = {
            node: ",".join(sorted(gpus, key=lambda gpu: (len(gpu), gpu)))
            for node, gpus in by_node.items()
        }
        ray.get(
            [
                w.update_env_vars.remote({"CUDA_VISIBLE_DEVICES": visible[node]})
                for w, node in zip(self.workers, nodes, strict=True)
            ]
        )

    def _check_started(self):
        if not self.workers:
            raise RuntimeError("The executor has not been started; call start() first.")

    def _collect(self, refs):
        results, trouble = wait_for_results(refs)
        if trouble is None:
            return results
        error, is_stuck = trouble
        if is_stuck:  # in a collective of which a rank is missing, or in the user's code
            _log.warning("ranks that did not end after the failure are killed")
            self.shutdown()
        raise error

    def _submit(self, fn):
        self._check_started()
        return [worker.execute.remote(fn) for worker in self.workers]

    def execute(self, fn: Callable[[Any], Any], callbacks: list[Callable] | None = None) -> list:
        """fn(executable) on all workers; the results by rank."""
        self._check_started()
        if not callbacks:
            return self._collect(self._submit(fn))
        thread = CallbackThread(callbacks)
        thread.start()
        try:
            map_blocking(lambda w: w.set_queue.remote(thread.queue), self.workers)
            return self._collect(self._submit(fn))
        finally:
            for worker in self.workers:  # some may be dead, which the error of the run says
                worker.set_queue.remote(None)
            thread.close()

    def _run(
        self, fn: Callable, args: list, kwargs: dict, callbacks: list[Callable] | None
    ) -> list:
        return self.execute(lambda _: fn(*args, **kwargs), callbacks)

    def run_remote(
        self, fn: Callable, args: list | None = None, kwargs: dict | None = None
    ) -> list:
        """As run(), but returns object references at once, one per rank."""
        args, kwargs = list(args or []), dict(kwargs or {})
        return self._submit(lambda _: fn(*args, **kwargs))

    def execute_single(self, fn: Callable[[Any], Any]) -> Any:
        """fn(executable) on rank 0."""
        self._check_started()
        return ray.get(self.workers[0].execute.remote(fn))

    def shutdown(self) -> None:
        """End the workers and give their resources back."""
        for worker in self.workers:
            ray.kill(worker)
        self.workers = []
        if self.coordinator is not None:
            self.coordinator.stop()
            self.coordinator = None
        if self.strategy is not None:
            self.strategy.shutdown()
            self.strategy = None
