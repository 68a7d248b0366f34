# SPDX-License-Identifier: Apache-2.0
"""The names that every framework's package offers: `from horovod.common.names import *`.

One HorovodBasics serves all of them, as there is one core in a process.
"""

from horovod.common.basics import HorovodBasics as _HorovodBasics
from horovod.common.process_sets import (
    ProcessSet,
    _setup,
    add_process_set,
    global_process_set,
    remove_process_set,
)
from horovod.common.util import get_average_backwards_compatibility_fun

basics = _HorovodBasics(__file__)
_setup(basics)

init = basics.init
shutdown = basics.shutdown
is_initialized = basics.is_initialized
start_timeline = basics.start_timeline
stop_timeline = basics.stop_timeline
advise = basics.advise
dump = basics.dump
metrics = basics.metrics
snapshot = basics.snapshot
size = basics.size
local_size = basics.local_size
cross_size = basics.cross_size
rank = basics.rank
local_rank = basics.local_rank
cross_rank = basics.cross_rank
is_homogeneous = basics.is_homogeneous
mpi_threads_supported = basics.mpi_threads_supported
mpi_enabled = basics.mpi_enabled
mpi_built = basics.mpi_built
gloo_enabled = basics.gloo_enabled
gloo_built = basics.gloo_built
nccl_built = basics.nccl_built
ddl_built = basics.ddl_built
ccl_built = basics.ccl_built
cuda_built = basics.cuda_built
rocm_built = basics.rocm_built

Average = basics.Average
Sum = basics.Sum
Adasum = basics.Adasum
Min = basics.Min
Max = basics.Max
Product = basics.Product

handle_average_backwards_compatibility = get_average_backwards_compatibility_fun(basics)

__all__ = [
    "Adasum",
    "Average",
    "Max",
    "Min",
    "ProcessSet",
    "Product",
    "Sum",
    "add_process_set",
    "advise",
    "ccl_built",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "dump",
    "global_process_set",
    "gloo_built",
    "gloo_enabled",
    "handle_average_backwards_compatibility",
    "init",
    "is_homogeneous",
    "is_initialized",
    "local_rank",
    "local_size",
    "metrics",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "rank",
    "remove_process_set",
    "rocm_built",
    "shutdown",
    "size",
    "snapshot",
    "start_timeline",
    "stop_timeline",
]

# Functions that a package may offer in a form of its own.
QUESTIONS = tuple(name for name in __all__ if hasattr(basics, name) and name.islower())
