# SPDX-License-Identifier: Apache-2.0
"""Init, shutdown and the questions that every framework's package answers alike."""

import atexit
import ctypes
import os

from horovod.common import ending, util
from horovod.common import process_sets as _process_sets
from horovod.common.library import load_ctypes, native


# Stands for mpi4py's module in annotations. Importing that one would initialise MPI, which is not
# for us to do in a job that may not use it.
class MPI:
    class Comm: ...


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

    def __init__(self, pkg_path, *args):
        self._pkg_path = pkg_path

    @property
    def MPI_LIB_CTYPES(self):  # noqa: N802
        """The library for ctypes."""
        return load_ctypes()

    # ---- life ----

    def init(self, comm=None, process_sets=None):
        """Start Horovod. Blocks until all ranks are there.

        comm: None, or a list of world ranks that form the job, or an mpi4py communicator.
        process_sets: None, a list of ProcessSet, or "dynamic" to allow adding them later.
        """
        if isinstance(process_sets, str) and process_sets.lower() == "dynamic":
            os.environ["HOROVOD_DYNAMIC_PROCESS_SETS"] = "1"
            process_sets = None
        process_sets = list(process_sets) if process_sets is not None else []
        ranks, world = self._read_comm(comm)
        if world is None and any(ps.ranks is None for ps in process_sets):
            raise NotImplementedError(
                "Horovod process sets can be defined by MPI communicators only when Horovod is "
                "initialized with an MPI communicator."
            )
        atexit.register(self.shutdown)
        atexit.register(ending.let_others_go_first)
        ending.watch()
        try:
            if not native.is_initialized():
                sets = self._distinct_sets(process_sets)
                if world is None:
                    native.init(ranks, sets)
                else:
                    comms = [world] + [ps.mpi_comm for ps in process_sets if ps.ranks is None]
                    native.init(ranks, sets, self._comm_bytes(comms), len(comms))
        except (RuntimeError, ValueError) as error:
            raise ValueError(
                "Horovod initialization failed. Please check log messages above for a more "
                f"descriptive error. Cause: {error}"
            ) from error
        _process_sets._setup(self)
        if world is not None:
            _process_sets.global_process_set.mpi_comm = world
        try:
            _process_sets._init_process_sets(process_sets)
        except ValueError as error:
            # A peer may shut down before we have read the table.
            if "Horovod has not been initialized properly" not in str(error):
                raise

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

    def shutdown(self):
        """Stop Horovod on all ranks; operations that are still pending fail."""
        native.shutdown()

    def is_initialized(self):
        return native.is_initialized()

    # ---- timeline ----

    def start_timeline(self, file_path, mark_cycles=False):
        try:
            native.timeline_start(os.fspath(file_path), bool(mark_cycles))
        except RuntimeError as error:
            raise ValueError(str(error)) from error

    def stop_timeline(self):
        try:
            native.timeline_stop()
        except RuntimeError as error:
            raise ValueError(str(error)) from error

    # ---- who am I ----

    def size(self):
        value = native.size()
        if value < 0:
            raise ValueError(_NOT_INITIALIZED)
        return value

    def local_size(self):
        value = native.local_size()
        if value < 0:
            raise ValueError(_NOT_INITIALIZED)
        return value

    def cross_size(self):
        value = native.cross_size()
        if value < 0:
            raise ValueError(_NOT_INITIALIZED)
        return value

    def rank(self):
        value = native.rank()
        if value < 0:
            raise ValueError(_NOT_INITIALIZED)
        return value

    def local_rank(self):
        value = native.local_rank()
        if value < 0:
            raise ValueError(_NOT_INITIALIZED)
        return value

    def cross_rank(self):
        value = native.cross_rank()
        if value < 0:
            raise ValueError(_NOT_INITIALIZED)
        return value

    def is_homogeneous(self):
        value = native.is_homogeneous()
        if value < 0:
            raise ValueError(_NOT_INITIALIZED)
        return bool(value)

    # ---- what this build can do ----

    def mpi_threads_supported(self):
        if not self.mpi_enabled():
            raise ValueError("Horovod MPI is not enabled; please make sure it's installed and on.")
        return bool(load_ctypes().horovod_mpi_threads_supported())

    def mpi_enabled(self):
        return bool(load_ctypes().horovod_mpi_enabled())

    def mpi_built(self):
        return bool(native.feature("mpi"))

    def gloo_enabled(self):
        return bool(load_ctypes().horovod_gloo_enabled())

    def gloo_built(self):
        return bool(native.feature("gloo"))

    def nccl_built(self):
        return int(native.feature("nccl"))

    def ddl_built(self):
        return bool(native.feature("ddl"))

    def ccl_built(self):
        return bool(native.feature("ccl"))

    def cuda_built(self):
        return bool(native.feature("cuda"))

    def rocm_built(self):
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
            if "does not exist" in str(error):
                return None
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
            raise ValueError(
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
