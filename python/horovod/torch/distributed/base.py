# SPDX-License-Identifier: Apache-2.0
"""What every process group of the backend has: its names, its time limits, how its operations run.

Start reading at `GroupBase._run`.
"""

import hashlib
import threading
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from horovod.common.library import native
from horovod.torch.distributed.order import Order
from horovod.torch.distributed.tensors import to_native
from horovod.torch.distributed.work import EndedWork, HorovodWork, Names, Task, flights


class GroupBase(dist.ProcessGroup):
    """A process group without its operations."""

    def __init__(
        self,
        store: Any,
        rank: int,
        size: int,
        timeout: timedelta,
        name: str,
        ranks: Sequence[int],
        set_id: int,
        at_shutdown: Callable[["GroupBase"], None] | None = None,
    ) -> None:
        super().__init__(rank, size)
        self._store = store
        self._my_rank = rank
        self._my_size = size
        self._timeout = timeout
        self._name = name
        self._torch_name = name
        self._torch_desc = "undefined"
        self._ranks = list(ranks)
        self._set = set_id
        self._at_shutdown = at_shutdown
        in_order = sorted(self._ranks)
        self._places = [in_order.index(r) for r in self._ranks]
        self._is_sorted = in_order == self._ranks
        self._group_ranks = {r: i for i, r in enumerate(self._ranks)}
        self._channel = int.from_bytes(
            hashlib.blake2b(name.encode(), digest_size=8).digest(), "big"
        )
        self._order = Order(name)
        self._names = Names(self._order)
        self._sequence = 0
        self._barriers = 0
        self._lock = threading.Lock()
        self._coalesced: list[HorovodWork] | None = None

    # ---- about the group ----

    def getBackendName(self) -> str:  # noqa: N802 - the name that PyTorch looks for
        """The name of the backend."""
        return "horovod"

    def name(self) -> str:
        """The same."""
        return "horovod"

    def _get_backend_name(self) -> str:
        return "horovod"

    def setGroupName(self, group_name: str) -> None:  # noqa: N802
        """PyTorch gives the group its name."""
        self._torch_name = group_name

    _set_group_name = setGroupName

    def getGroupName(self) -> str:  # noqa: N802
        """The name that PyTorch gave the group."""
        return self._torch_name

    @property
    def group_name(self) -> str:
        """The same."""
        return self._torch_name

    def setGroupDesc(self, group_desc: str) -> None:  # noqa: N802
        """PyTorch says what the group is for."""
        self._torch_desc = group_desc

    _set_group_desc = setGroupDesc

    def getGroupDesc(self) -> str:  # noqa: N802
        """What the group is for."""
        return self._torch_desc

    @property
    def group_desc(self) -> str:
        """The same."""
        return self._torch_desc

    def rank(self) -> int:
        """This process's rank in the group."""
        return self._my_rank

    def size(self) -> int:
        """The number of ranks in the group."""
        return self._my_size

    def get_group_store(self) -> Any:
        """The group's own part of the store."""
        return self._store

    @property
    def _device_types(self) -> list[torch.device]:
        return [torch.device("cpu")]

    def _get_backend(self, device: torch.device) -> "GroupBase":
        return self

    @property
    def supports_splitting(self) -> bool:
        """torch.distributed asks; groups are made by new_group()."""
        return False

    @property
    def supports_coalescing(self) -> bool:
        """Collectives can be collected and waited for together."""
        return True

    def set_timeout(self, timeout: timedelta) -> None:
        """The time limit of later operations."""
        self._timeout = timeout

    _set_default_timeout = set_timeout

    def _get_sequence_number_for_group(self) -> int:
        return self._sequence

    def _set_sequence_number_for_group(self) -> None:
        pass

    def shutdown(self) -> None:
        """The end of the group; of the world, too, if it is the first group."""
        at_shutdown, self._at_shutdown = self._at_shutdown, None
        if at_shutdown is not None:
            at_shutdown(self)

    abort = shutdown

    def _when_idle(self, call: Callable[[], None]) -> None:
        """Call a function when no collective of the group is in flight, on whichever thread."""
        self._names.when_idle(call)

    def _part(self) -> None:
        """Wait until every rank has called this, or the world has broken."""
        token = torch.zeros(1, dtype=torch.uint8)
        task = self._task(native.ALLREDUCE, ("part",), native.MAX, (1.0, 1.0), 0, token, token)
        self._run("destroy_process_group", [task], [token], None).wait()

    # ---- running ----

    def _limit(self, opts: Any) -> timedelta:
        timeout = getattr(opts, "timeout", None) if opts is not None else None
        if isinstance(opts, timedelta):
            timeout = opts
        return self._timeout if timeout is None or timeout <= timedelta(0) else timeout

    def _task(
        self,
        kind: int,
        key: tuple,
        op: int,
        scales: tuple[float, float],
        root: int,
        tensor: torch.Tensor,
        output: torch.Tensor | None,
        splits: list[int] | None = None,
        finish: Callable[[int], Any] | None = None,
        kept: Any = None,
    ) -> Task:
        """One operation of the core, named by its position; `key` tells it from others."""
        position, name = self._order.take(key)
        source = to_native(tensor)
        target = source if output is tensor else None if output is None else to_native(output)
        arguments = (kind, name, self._set, op, *scales, root, source, target, splits)

        def submit(flags: int) -> int:
            return native.submit(*arguments, flags)

        task = Task(submit, finish, (tensor, output, kept), name)
        task.names = self._names
        task.position = position
        return task

    def _run(
        self,
        what: str,
        tasks: Sequence[Task],
        outputs: Any,
        opts: Any,
        at_end: Callable[[Sequence[Task]], None] | None = None,
    ) -> HorovodWork:
        self._sequence += 1
        is_waited = getattr(opts, "asyncOp", True) is False and self._coalesced is None
        if is_waited and len(tasks) == 1 and flights.run(tasks[0]):
            error = None
            try:
                if at_end is not None:
                    at_end(tasks)
            except Exception as failure:
                error = failure
            return EndedWork(what, outputs, error)
        work = HorovodWork(what, tasks, outputs, self._limit(opts), at_end)
        work.start(is_waited)
        if self._coalesced is not None:
            self._coalesced.append(work)
        return work

    def _many(self, what: str, works: Iterable[HorovodWork], outputs: Any, opts: Any) -> Any:
        """Several works as one. Iterating over `works` starts them; none waits for its sisters."""
        outer, self._coalesced = self._coalesced, []
        try:
            started = list(works)
        finally:
            inner, self._coalesced = self._coalesced, outer
        if outer is not None:
            outer.extend(inner)
        return _Together(what, started, outputs, self._limit(opts))

    def _start_coalescing(self, device: Any = None) -> None:
        self._coalesced = []

    def _end_coalescing(self, device: Any = None) -> Any:
        works, self._coalesced = self._coalesced or [], None
        outputs = [output for work in works for output in work.outputs]
        return self._many("coalesced", works, outputs, None)

    def _in_order(self, parts: Sequence[Any]) -> list[Any]:
        """Something for each rank of the group, in the order of the core's set."""
        if self._is_sorted:
            return list(parts)
        placed: list[Any] = [None] * len(parts)
        for part, place in zip(parts, self._places, strict=True):
            placed[place] = part
        return placed

    def _set_root(self, rank: int) -> int:
        if not 0 <= rank < self._my_size:
            raise ValueError(f"There is no rank {rank} in a group of {self._my_size}.")
        return self._ranks[rank]


class _Together(HorovodWork):
    """Several works as one."""

    def __init__(self, what: str, works: Sequence[HorovodWork], outputs: Any, timeout: Any) -> None:
        self._works = list(works)
        self._works_left = len(self._works)
        super().__init__(what, [], outputs, timeout)
        for work in self._works:
            work._then(self._work_done)

    def _complete(self, error: Exception | None) -> None:
        if error is None and self._works_left > 0:
            return  # the constructor of the base class: nothing has ended yet
        super()._complete(error)

    def _work_done(self, work: HorovodWork) -> None:
        with self._lock:
            self._works_left -= 1
        self._complete(work._error)

    def _wait(self, timeout: timedelta | None) -> bool:
        for work in self._works:
            work.wait(timeout) if timeout is not None else work.wait()
        return super()._wait(timeout)
