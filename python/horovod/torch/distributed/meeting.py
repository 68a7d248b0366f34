# SPDX-License-Identifier: Apache-2.0
"""How the ranks of a torch.distributed job become a world of Horovod, and how that ends.

Three cases, tried in this order:

* Horovod runs already (`hvd.init()`): the group uses its world, and leaves it alone at the end.
* horovodrun, mpirun or srun started us and says the same rank and size: Horovod starts as always.
* otherwise (torchrun, or a program of its own): rank 0 serves a rendezvous store and tells the
  others where it is, and the key of the job, through the store of torch.distributed. Whoever can
  read that store can read the key.

The world lasts until the process ends. The first group ends when all ranks have said so or left: a
rank that is early must not take the world from ranks that still work.

Start reading at `create`.
"""

import contextlib
import hashlib
import os
import secrets
import socket
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from horovod.common.library import native
from horovod.common.names import basics
from horovod.torch import mpi_ops
from horovod.torch.distributed.group import HorovodProcessGroup
from horovod.torch.distributed.work import make_error
from horovod.torch.private import extend_monitored_barrier

# rank and size, as those who start programs tell them
_LAUNCHERS = (
    ("HOROVOD_RANK", "HOROVOD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
)
_server: Any = None
_lives = 0
_made: dict[tuple[int, ...], int] = {}  # groups of these ranks since the first group began
_sets_lock = threading.Lock()  # the core changes one process set of the same ranks at a time


def launched_as() -> tuple[int, int] | None:
    """Rank and size by horovodrun, mpirun or srun; None if none of them started us."""
    for rank, size in _LAUNCHERS:
        values = os.environ.get(rank, ""), os.environ.get(size, "")
        if all(value.isdigit() for value in values):
            return int(values[0]), int(values[1])
    return None


# ---- by way of torch's store ----


def _machine() -> str:
    """Equal for processes of one machine, and different for others."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            boot = file.read().strip()
        return f"{socket.gethostname()}/{boot}/{os.stat('/proc/self/ns/net').st_ino}"
    except OSError:
        return socket.gethostname()


def _places(machines: list[str], rank: int) -> tuple[int, int, int, int]:
    """local_rank, local_size, cross_rank, cross_size."""
    mine = machines[rank]
    local_rank = machines[:rank].count(mine)
    distinct = list(dict.fromkeys(machines))
    others = [m for m in distinct if machines.count(m) > local_rank]
    return local_rank, machines.count(mine), others.index(mine), len(others)


def _address(is_one_machine: bool) -> str:
    """Where rank 0 listens."""
    if is_one_machine:
        return f"unix:horovod-torch-{os.getpid()}-{secrets.token_hex(8)}"
    host = os.environ.get("MASTER_ADDR") or socket.gethostname()
    try:
        host = str(socket.getaddrinfo(host, None, socket.AF_INET)[0][4][0])
    except OSError:
        pass
    return f"{host}:0"


def _meet_at_store(store: Any, rank: int, size: int, timeout: timedelta) -> None:
    """Start Horovod with what the ranks tell each other in torch's store."""
    global _server
    # torchrun's store outlives a world: what an earlier one has left there is not ours.
    turn = store.add(f"horovod/turn/{rank}", 1)
    store = dist.PrefixStore(f"horovod/{turn}", store)
    store.set(f"machine/{rank}", _machine())
    machines = [store.get(f"machine/{i}").decode() for i in range(size)]
    if rank == 0:
        key = secrets.token_bytes(32)
        try:
            _server, address = native.store_serve(_address(len(set(machines)) == 1), key)
        except (RuntimeError, ValueError) as error:
            store.set("address", b"!" + str(error).encode())
            raise
        store.set("address", b"=" + key + address.encode())
    told = store.get("address")
    if told[:1] != b"=":
        raise make_error(
            "Rank 0 can't serve the rendezvous of Horovod: " + told[1:].decode(), native.ERR_OS
        )
    basics._init_at((rank, size, *_places(machines, rank)), told[33:].decode(), told[1:33])


# ---- the world ----


def _check_world(rank: int, size: int) -> None:
    have = native.rank(), native.size()
    if have != (rank, size):
        raise ValueError(
            f"torch.distributed says rank {rank} of {size}, but Horovod is rank {have[0]} of "
            f"{have[1]} in this process. Both must be the same job: give init_process_group the "
            "rank and world_size of hvd.rank() and hvd.size(), or let it find them."
        )


def _meet(store: Any, rank: int, size: int, timeout: timedelta) -> None:
    """Make sure that there is a world."""
    if not native.is_initialized():
        if launched_as() == (rank, size):
            mpi_ops.init()
        else:
            _meet_at_store(store, rank, size, timeout)
    _check_world(rank, size)


def _leave(group: HorovodProcessGroup) -> None:
    """The end of the first group: when all ranks have come here, or are gone.

    Horovod itself runs on until the process ends, so that another group can begin at once.
    """
    if native.is_initialized():
        try:
            group._part()
        except Exception:  # noqa: S110 - the others are gone, or are never coming
            pass


def _group_name(ranks: list[int]) -> str:
    """Equal on all members: by the ranks, and how many groups of these ranks there were before.

    PyTorch's own name depends on the number of groups that a rank is in, which may differ.
    """
    key = tuple(ranks)
    with _sets_lock:
        number = _made[key] = _made.get(key, 0) + 1
    text = "-".join(map(str, ranks))
    if len(text) > 40:
        text = hashlib.blake2b(text.encode(), digest_size=12).hexdigest()
    return f"torch{_lives}.{text}.{number}"


def _close_set(group: HorovodProcessGroup) -> None:
    """The end of another group: its process set is freed when all its members have come here."""
    life = _lives

    def close() -> None:
        # A set of an earlier life has ended with it; without a world there is none.
        with contextlib.suppress(Exception), _sets_lock:
            if life == _lives:
                native.process_set_close(group._set)

    group._when_idle(close)


def create(options: Any, backend_options: Any = None) -> HorovodProcessGroup:
    """Called by torch.distributed on the members of a new group."""
    global _lives
    rank, size, timeout = options.group_rank, options.group_size, options.timeout
    ranks = list(options.global_ranks_in_group)
    store = options.store
    if not ranks or not native.is_initialized():
        if ranks:
            raise make_error(
                "A group needs a world of the horovod backend, which has ended or never began: "
                'init_process_group("horovod") comes first.',
                native.ERR_NOT_INITIALIZED,
            )
        _meet(store, rank, size, timeout)
        extend_monitored_barrier(HorovodProcessGroup)
        _lives += 1
        _made.clear()
        return HorovodProcessGroup(
            *(store, rank, size, timeout, f"torch{_lives}", range(size), 0),
            _leave,
        )
    name = _group_name(ranks)
    if len(ranks) == native.size():
        return HorovodProcessGroup(store, rank, size, timeout, name, ranks, 0)
    with _sets_lock:
        number = native.process_set_open(sorted(ranks))
    return HorovodProcessGroup(store, rank, size, timeout, name, ranks, number, _close_set)


# ---- where nobody has set MASTER_ADDR ----


def _own_rendezvous(timeout: timedelta) -> Iterator[tuple[Any, int, int]]:
    """A store of torch for ranks that horovodrun, mpirun or srun started, found by Horovod."""
    from horovod.torch.functions import broadcast_object

    mpi_ops.init()
    rank, size = native.rank(), native.size()
    store, where = None, None
    if rank == 0:
        host = "localhost" if native.local_size() == size else socket.gethostname()
        store = dist.TCPStore(host, 0, size, True, timeout, wait_for_workers=False)
        where = (host, store.port)
    host, port = broadcast_object(where, 0, name="horovod.torch.distributed.store")
    if store is None:
        store = dist.TCPStore(host, port, size, False, timeout, wait_for_workers=False)
    yield store, rank, size


def rendezvous_before(env: Callable) -> Callable:
    """The env:// rendezvous, which falls back to ours where torch's variables are missing."""

    def rendezvous(url: str, timeout: timedelta = dist.default_pg_timeout, **kwargs: Any) -> Any:
        is_given = any(name in os.environ for name in ("MASTER_ADDR", "RANK", "WORLD_SIZE"))
        is_given = is_given or "rank=" in url or "world_size=" in url
        if is_given or (launched_as() is None and not native.is_initialized()):
            return env(url, timeout=timeout, **kwargs)
        return _own_rendezvous(timeout)

    return rendezvous
