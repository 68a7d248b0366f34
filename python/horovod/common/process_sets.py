# SPDX-License-Identifier: Apache-2.0
"""Process sets: groups of ranks that communicate among themselves.

The objects are shared by all frameworks. Ranks are always global ones; results of an operation are
ordered by the rank within the set.
"""

import weakref
from collections.abc import Iterable
from typing import Any

from horovod.common.library import native
from horovod.common.util import is_iterable

_basics: Any = None


# Stands for mpi4py's module in annotations, so that it need not be there, and MPI not initialised.
class MPI:
    class Comm: ...


class ProcessSet:
    """Ranks that communicate together: `ProcessSet([0, 2])`, or one made from an MPI communicator.

    It can be used in operations once it has a `process_set_id`: after `hvd.init(process_sets=...)`
    or `hvd.add_process_set()`.
    """

    process_set_id: int | None = None
    ranks: list[int] | None = None
    mpi_comm: Any = None

    def __init__(self, ranks_or_comm: Any) -> None:
        if is_iterable(ranks_or_comm):
            ranks = sorted(ranks_or_comm)
            if any(not isinstance(rank, int) for rank in ranks):
                raise ValueError(
                    "ProcessSet should be initialized with a list of process ranks or an mpi4py "
                    f"communicator. Got: {ranks}"
                )
            self.ranks = ranks
            return
        assert _basics is not None, "import a framework's horovod package first"
        if not _basics.mpi_built():
            raise ValueError(
                "Horovod has not been built with MPI support; a ProcessSet can only be made from a "
                f"list of ranks. Got: {ranks_or_comm!r}"
            )
        from mpi4py import MPI

        if not isinstance(ranks_or_comm, MPI.Comm):
            raise ValueError(
                "ProcessSet should be initialized with a list of process ranks or an mpi4py "
                f"communicator. Got: {ranks_or_comm!r}"
            )
        self.mpi_comm = ranks_or_comm

    def _invalidate(self):
        self.process_set_id = None

    def size(self) -> int | None:
        """Number of ranks in the set, or None while it is not registered."""
        if self.process_set_id is None:
            return None
        return _basics._process_set_size(self.process_set_id)

    def rank(self) -> int | None:
        """This process's rank within the set, or None while it is not registered."""
        if self.process_set_id is None:
            return None
        return _basics._process_set_rank(self.process_set_id)

    def included(self) -> bool | None:
        """Is this process a member? None while the ranks are not known."""
        if self.ranks is None:
            return None
        return _basics.rank() in self.ranks

    def __str__(self):
        return (
            f"ProcessSet(process_set_id={self.process_set_id}, ranks={self.ranks}, "
            f"mpi_comm={self.mpi_comm})"
        )

    __repr__ = __str__


global_process_set = ProcessSet([])
global_process_set.process_set_id = 0


def _temp_process_set_object(process_set_id):
    """A ProcessSet with just an id, for code that knows nothing else."""
    process_set = ProcessSet.__new__(ProcessSet)
    process_set.process_set_id = process_set_id
    return process_set


def _setup(basics):
    """Remember which framework's basics answer the questions of the objects."""
    global _basics
    _basics = basics


# Of an elastic job: the sets that init() was given, which each generation registers again, and all
# that have an id.
_given: list[ProcessSet] = []
_registered: "weakref.WeakSet[ProcessSet]" = weakref.WeakSet()


def _add_fitting(process_sets):
    """In an elastic job: register the sets whose ranks all exist in this generation.

    The others have no id, on any rank, until the world is large enough again. Sets that were added
    by add_process_set() are forgotten: a worker that has just come does not know them.
    """
    _given[:] = process_sets
    for process_set in list(_registered):
        process_set._invalidate()
    _registered.clear()
    global_process_set.ranks = world = list(_basics._get_process_set_ids_and_ranks()[0])
    ids_of = {tuple(world): 0, (): 0}
    for process_set in process_sets:
        ranks = tuple(process_set.ranks)
        process_set._invalidate()
        if ranks and ranks[-1] >= len(world):
            continue
        if ranks not in ids_of:
            ids_of[ranks] = native.process_set_add(list(ranks))
        process_set.process_set_id = ids_of[ranks]
        _registered.add(process_set)


def _init_process_sets(process_set_list):
    """Give ids to the sets that init registered; the one that came twice is refused."""
    ids_of = {tuple(r): i for i, r in _basics._get_process_set_ids_and_ranks().items()}
    global_process_set.ranks = list(_basics._get_process_set_ids_and_ranks()[0])
    taken = {0: global_process_set}
    duplicates = []
    for index, process_set in enumerate(process_set_list):
        ranks = process_set.ranks
        if ranks is None:
            process_set_id = _basics._comm_process_set_id(process_set.mpi_comm)
            process_set.ranks = list(_basics._get_process_set_ids_and_ranks()[process_set_id])
        else:
            process_set_id = ids_of[tuple(ranks)] if ranks else 0
        owner = taken.setdefault(process_set_id, process_set)
        if owner is process_set and owner is not global_process_set:
            process_set.process_set_id = process_set_id
        else:
            process_set._invalidate()
            duplicates.append((index, process_set))
    if duplicates:
        index, process_set = duplicates[0]
        raise ValueError(
            "Horovod could not be initialized because process_sets entry number "
            f"{index} is a duplicate: {process_set}"
        )


def add_process_set(process_set: ProcessSet | Iterable[int]) -> ProcessSet:
    """Register a set after init. Every rank of the world calls it, in the same order."""
    return _add(process_set)


def _add(process_set):
    if not isinstance(process_set, ProcessSet) and is_iterable(process_set):
        process_set = ProcessSet(process_set)
    if process_set.ranks is None:
        raise NotImplementedError(
            "Dynamically adding process sets defined by an MPI communicator is not supported. "
            "Please build it from a list of ranks."
        )
    process_set.process_set_id = _basics._add_process_set_impl(process_set.ranks)
    _registered.add(process_set)
    return process_set


def remove_process_set(process_set: ProcessSet) -> bool:
    """Forget a set. Every rank of the world calls it. False if there was nothing to remove."""
    if process_set.process_set_id is None or process_set is global_process_set:
        return False
    process_set_id = process_set.process_set_id
    if process_set_id == 0:
        return False
    process_set._invalidate()
    return _basics._remove_process_set_impl(process_set_id) is not None
