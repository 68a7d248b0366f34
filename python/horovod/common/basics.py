# SPDX-License-Identifier: Apache-2.0
"""Init, shutdown and the questions that every framework's package answers alike."""

import atexit
import ctypes
import json
import os
import sys
from collections.abc import Iterable
from typing import Any

from horovod.common import handles as _handles
from horovod.common import metrics as _metrics
from horovod.common import process_sets as _process_sets
from horovod.common import stacks as _stacks
from horovod.common import util
from horovod.common.exceptions import WorkerRemovedExit
from horovod.common.library import load_ctypes, native

native.set_place_hook(_stacks.place_if_only_waiting)


# Stands for mpi4py's module in annotations. Importing that one would initialise MPI, which is not
# for us to do in a job that may not use it.
class MPI:
    class Comm: ...


class _StoppedError(ValueError):
    """There is no table of process sets: Horovod is not running, or not any more."""


_ELASTIC_TRIES = 10
_NOT_INITIALIZED = "Horovod has not been initialized; use hvd.init()."


def _last_error():
    function = load_ctypes().hvd_last_error
    function.restype = ctypes.c_char_p
    return function().decode()


class HorovodBasics:
    """One object per framework package, whose bound methods the package re-exports."""

    Average = native.AVERAGE
    Sum = native.SUM
    Adasum = native.ADASUM
    Min = native.MIN
    Max = native.MAX
    Product = native.PRODUCT

    HOROVOD_PROCESS_SET_ERROR_INIT = -1
    HOROVOD_PROCESS_SET_ERROR_DYNAMIC = -2
    HOROVOD_PROCESS_SET_ERROR_UNKNOWN_SET = -3
    HOROVOD_PROCESS_SET_ERROR_FOREIGN_SET = -4
    HOROVOD_PROCESS_SET_ERROR_SHUTDOWN = -5
    HOROVOD_PROCESS_SET_ERROR_EXISTING_SET = -6

    def __init__(self, pkg_path: str, *args: Any) -> None:
        self._pkg_path = pkg_path

    @property
    def MPI_LIB_CTYPES(self):  # noqa: N802
        """The library for ctypes."""
        return load_ctypes()

    # ---- life ----

    def init(
        self, comm: Any = None, process_sets: str | Iterable[_process_sets.ProcessSet] | None = None
    ) -> None:
        """Start Horovod. Blocks until all ranks are there.

        comm: None, or a list of world ranks that form the job, or an mpi4py communicator.
        process_sets: None, a list of ProcessSet, or "dynamic" to allow adding them later.
        """
        if isinstance(process_sets, str) and process_sets.lower() == "dynamic":
            os.environ["HOROVOD_DYNAMIC_PROCESS_SETS"] = "1"
            process_sets = None
        sets_given: Any = [] if process_sets is None else process_sets
        process_sets = list(sets_given)
        ranks, world = self._read_comm(comm)
        if world is None and any(ps.ranks is None for ps in process_sets):
            raise NotImplementedError(
                "Horovod process sets can be defined by MPI communicators only when Horovod is "
                "initialized with an MPI communicator."
            )
        _stacks.announce()
        _stacks.watch_exceptions()
        atexit.register(self.shutdown)
        try:
            if not native.is_initialized():
                if os.environ.get("HOROVOD_ELASTIC") == "1" and world is None:
                    self._init_elastic(ranks, process_sets)
                    return
                sets = self._distinct_sets(process_sets)
                if world is None:
                    native.init(ranks, sets)
                else:
                    comms = [world] + [ps.mpi_comm for ps in process_sets if ps.ranks is None]
                    native.init(ranks, sets, self._comm_bytes(comms), len(comms))
                _handles.begin_life()
        except (RuntimeError, ValueError) as error:
            if getattr(error, "status", None) == native.ERR_REMOVED:
                raise WorkerRemovedExit(str(error)) from error
            raise ValueError(
                "Horovod initialization failed. Please check log messages above for a more "
                f"descriptive error. Cause: {error}"
            ) from error
        _process_sets._setup(self)
        if world is not None:
            _process_sets.global_process_set.mpi_comm = world
        try:
            _process_sets._init_process_sets(process_sets)
        except _StoppedError:
            pass  # a peer may shut down before we have read the table
        self._serve_metrics()

    def _serve_metrics(self) -> None:
        """Only if the environment asks for it; a job must not fail for its metrics."""
        try:
            _metrics.serve(self.metrics, native.rank(), native.local_rank())
        except (OSError, ValueError, OverflowError) as error:
            print(f"Horovod's metrics can't be served: {error}", file=sys.stderr)

    def _init_at(self, place: tuple[int, ...], address: str, key: bytes) -> None:
        """Start Horovod where the caller knows rank, size, place and the address of a store.

        place: rank, size, local_rank, local_size, cross_rank, cross_size.
        """
        _stacks.announce()
        atexit.register(self.shutdown)
        native.init_at(*place, address, key)
        _handles.begin_life()
        _process_sets._setup(self)
        _process_sets._init_process_sets([])

    def _init_elastic(self, ranks, process_sets):
        """Enter a generation of an elastic job; the number of ranks is known only afterwards.

        A worker may be lost before all ranks have registered the process sets: then the next
        generation is tried.
        """
        os.environ["HOROVOD_DYNAMIC_PROCESS_SETS"] = "1"
        _process_sets._setup(self)
        for tries_left in reversed(range(_ELASTIC_TRIES)):
            native.init(ranks, [])
            _handles.begin_life()
            try:
                _process_sets._add_fitting(process_sets)
                break
            except (RuntimeError, _StoppedError):
                self.shutdown()
                if not tries_left:
                    raise
        self._write_place()

    def _write_place(self):
        """Scripts read their rank in the environment; it may be another in each generation."""
        for name in ("rank", "size", "local_rank", "local_size", "cross_rank", "cross_size"):
            os.environ[f"HOROVOD_{name.upper()}"] = str(getattr(self, name)())

    @staticmethod
    def _distinct_sets(process_sets):
        """Rank lists in order of first appearance; those for all ranks need no registration."""
        distinct = []
        for process_set in process_sets:
            if process_set.ranks and process_set.ranks not in distinct:
                distinct.append(process_set.ranks)
        return distinct

    @staticmethod
    def _read_comm(comm):
        """What `comm` is: (list of ranks or None, communicator or None)."""
        if comm is None:
            return None, None
        if util.is_iterable(comm):
            if isinstance(comm, str):
                raise TypeError("comm must be a list of ranks or an mpi4py communicator")
            return list(comm) or None, None
        if not util.mpi_built():
            raise ValueError(
                "Horovod has not been built with MPI support; ensure MPI is installed, or do not "
                "pass a communicator to hvd.init()."
            )
        from mpi4py import MPI

        if not isinstance(comm, MPI.Comm):
            raise ValueError("Invalid type of argument comm. Expected list or mpi4py.MPI.Comm.")
        return None, comm

    @staticmethod
    def _comm_bytes(comms):
        """The communicators as the C array of MPI_Comm that they are inside mpi4py's objects."""
        from mpi4py import MPI

        return b"".join(ctypes.string_at(MPI._addressof(c), MPI._sizeof(c)) for c in comms)

    def shutdown(self) -> None:
        """Stop Horovod on all ranks; operations that are still pending fail."""
        self._summarize()
        _handles.end_life(native.shutdown)

    def _summarize(self) -> None:
        """With horovodrun --summary, rank 0 reports what bounded the steps; never fails."""
        if native.rank() != 0 or os.environ.get("HOROVOD_SUMMARY", "0") in ("", "0"):
            return
        try:
            measured = self.metrics()
            count = measured.get("steps", {}).get("count", 0)
            native.summary(f"{count} steps on {native.size()} ranks. {_metrics.advise(measured)}")
        except (ValueError, KeyError, TypeError, ArithmeticError):
            pass  # a paragraph less, not an error

    def is_initialized(self) -> bool:
        """Has init() been called in this process, and shutdown() not since?"""
        return native.is_initialized()

    def snapshot(self) -> dict:
        """What this rank is doing, as a dict; see docs/snapshot.md.

        Works at any time and from any thread, also before init() and when the job is stuck or
        broken, and changes nothing.
        """
        return json.loads(native.snapshot())

    def dump(self, folder: str | os.PathLike | None = None) -> str:
        """Write this rank's snapshot and last events for horovod-inspect; returns the file.

        folder: where to; None: HOROVOD_POSTMORTEM_DIR. Call it on every rank whose story you want;
        a rank that is stuck writes the same when it gets SIGUSR1. See docs/diagnosis.md.
        """
        where = os.fspath(folder) if folder is not None else ""
        try:
            native.dump(where)
        except RuntimeError as error:
            raise ValueError(str(error)) from error
        where = where or os.environ.get("HOROVOD_POSTMORTEM_DIR", "")
        return os.path.join(where, f"rank.{native.rank()}.json")

    def metrics(self) -> dict:
        """What this rank has measured since init(), as a dict; see docs/metrics.md.

        Ops and bytes, how long tensors waited and ran, steps, which ranks it waited for; on rank 0
        also the steps of all ranks and which of them are slow.
        """
        measured = json.loads(native.metrics())
        times = os.times()
        measured["cpu_s"] = times.user + times.system
        cpu = measured.get("cpu", {})
        if cpu.get("age_s", 0) > 0:
            cpu["cores"] = (cpu["user_s"] + cpu["system_s"]) / cpu["age_s"]
        return measured

    def advise(self) -> str:
        """One paragraph: what bounds the training step, and what to change.

        Rank 0 knows most: it also sees whether another rank holds the job up.
        """
        return _metrics.advise(self.metrics())

    # ---- timeline ----

    def start_timeline(self, file_path: str | os.PathLike, mark_cycles: bool = False) -> None:
        """Start to write a trace for chrome://tracing; needs HOROVOD_TIMELINE at init."""
        try:
            native.timeline_start(os.fspath(file_path), bool(mark_cycles))
        except RuntimeError as error:
            raise ValueError(str(error)) from error

    def stop_timeline(self) -> None:
        """Close the trace file."""
        try:
            native.timeline_stop()
        except RuntimeError as error:
            raise ValueError(str(error)) from error

    # ---- who am I ----

    def size(self) -> int:
        """Number of ranks in the job."""
        value = native.size()
        if value < 0:
            raise ValueError(_NOT_INITIALIZED)
        return value

    def local_size(self) -> int:
        """Number of ranks on this machine."""
        value = native.local_size()
        if value < 0:
            raise ValueError(_NOT_INITIALIZED)
        return value

    def cross_size(self) -> int:
        """Number of machines that have a rank with our local rank."""
        value = native.cross_size()
        if value < 0:
            raise ValueError(_NOT_INITIALIZED)
        return value

    def rank(self) -> int:
        """The number of this process among all, from 0."""
        value = native.rank()
        if value < 0:
            raise ValueError(_NOT_INITIALIZED)
        return value

    def local_rank(self) -> int:
        """The number of this process among those on its machine, from 0."""
        value = native.local_rank()
        if value < 0:
            raise ValueError(_NOT_INITIALIZED)
        return value

    def cross_rank(self) -> int:
        """The number of this machine among those that have a rank with our local rank."""
        value = native.cross_rank()
        if value < 0:
            raise ValueError(_NOT_INITIALIZED)
        return value

    def is_homogeneous(self) -> bool:
        """Has every machine the same number of ranks?"""
        value = native.is_homogeneous()
        if value < 0:
            raise ValueError(_NOT_INITIALIZED)
        return bool(value)

    # ---- what this build can do ----

    def mpi_threads_supported(self) -> bool:
        """Does MPI allow calls from several threads at once? ValueError without MPI."""
        if not self.mpi_enabled():
            raise ValueError("Horovod MPI is not enabled; please make sure it's installed and on.")
        return bool(load_ctypes().horovod_mpi_threads_supported())

    def mpi_enabled(self) -> bool:
        """Is MPI in use in this job?"""
        return bool(load_ctypes().horovod_mpi_enabled())

    def mpi_built(self) -> bool:
        """Can this build use MPI?"""
        return bool(native.feature("mpi"))

    def gloo_enabled(self) -> bool:
        """Is the built-in transport in use in this job?"""
        return bool(load_ctypes().horovod_gloo_enabled())

    def gloo_built(self) -> bool:
        """Does this build have its own transport, which stands for Gloo?"""
        return bool(native.feature("gloo"))

    def nccl_built(self) -> int:
        """The version of NCCL that this build can use, as a number; 0 without."""
        return int(native.feature("nccl"))

    def ddl_built(self) -> bool:
        """Can this build use DDL?"""
        return bool(native.feature("ddl"))

    def ccl_built(self) -> bool:
        """Can this build use oneCCL?"""
        return bool(native.feature("ccl"))

    def cuda_built(self) -> bool:
        """Can this build use CUDA?"""
        return bool(native.feature("cuda"))

    def rocm_built(self) -> bool:
        """Can this build use ROCm?"""
        return bool(native.feature("rocm"))

    # ---- process sets ----

    def _add_process_set_impl(self, ranks):
        try:
            return native.process_set_add(list(ranks))
        except RuntimeError as error:
            raise ValueError(self._set_error(error)) from error

    def _remove_process_set_impl(self, process_set_id):
        """The id, or None if there was no such set."""
        try:
            native.process_set_remove(process_set_id)
        except ValueError as error:
            if getattr(error, "status", None) == native.ERR_INVALID:
                return None  # no such set
            raise
        except RuntimeError as error:
            raise ValueError(self._set_error(error)) from error
        return process_set_id

    @staticmethod
    def _set_error(error):
        if getattr(error, "status", None) == native.ERR_SHUTDOWN:
            return "Horovod is shutting down."
        return str(error)

    def _process_set_rank(self, process_set_id):
        try:
            return native.process_set_rank(process_set_id)
        except RuntimeError as error:
            raise ValueError(str(error)) from error

    def _process_set_size(self, process_set_id):
        try:
            return native.process_set_size(process_set_id)
        except RuntimeError as error:
            raise ValueError(str(error)) from error

    def _get_process_set_ids_and_ranks(self):
        try:
            return native.process_sets()
        except RuntimeError as error:
            raise _StoppedError(
                f"Horovod has not been initialized properly or is shutting down: {error}"
            ) from error

    def _comm_process_set_id(self, comm):
        """The id of the registered set that has the members of an mpi4py communicator."""
        process_set_id = ctypes.c_int32(-1)
        status = load_ctypes().hvd_process_set_of_comm(
            self._comm_bytes([comm]), ctypes.byref(process_set_id)
        )
        if status != 0:
            raise ValueError(
                "Failed to find a Horovod process set for this communicator: " + _last_error()
            )
        return process_set_id.value
