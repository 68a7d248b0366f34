# SPDX-License-Identifier: Apache-2.0
"""Horovod for TensorFlow: eager execution, tf.function and the graphs of TensorFlow 1.

    import horovod.tensorflow as hvd
    hvd.init()
    ...
    tape = hvd.DistributedGradientTape(tape)
    optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))

For `model.fit` see horovod.tensorflow.keras.
"""

from horovod.common.process_sets import (
    ProcessSet,
    add_process_set,
    global_process_set,
    remove_process_set,
)
from horovod.common.util import (
    check_extension,
    check_installed_version,
    gpu_available,
    is_version_greater_equal_than,
    missing_framework,
    split_list,
)

check_extension("horovod.tensorflow", "HOROVOD_WITH_TENSORFLOW", __file__, "mpi_lib")

try:
    import tensorflow as tf  # noqa: E402
except ModuleNotFoundError as error:
    raise missing_framework("horovod.tensorflow", "TensorFlow", "tensorflow", error) from error

check_installed_version("tensorflow", tf.__version__)

from horovod.tensorflow import elastic, gradient_aggregation, util  # noqa: E402
from horovod.tensorflow.compression import Compression, Compressor  # noqa: E402
from horovod.tensorflow.functions import (  # noqa: E402
    BroadcastGlobalVariablesHook,
    _SessionRunHook,
    allgather_object,
    broadcast_global_variables,
    broadcast_object,
    broadcast_object_fn,
    broadcast_variables,
)
from horovod.tensorflow.gradient_aggregation import LocalGradientAggregationHelper  # noqa: E402
from horovod.tensorflow.gradient_aggregation_eager import (  # noqa: E402
    LocalGradientAggregationHelperEager,
)
from horovod.tensorflow.gradients import (  # noqa: E402
    DistributedGradientTape,
    DistributedOptimizer,
    PartialDistributedGradientTape,
    _DistributedAdasumOptimizer,
    _DistributedGradientTape,
    _DistributedOptimizer,
    _LegacyOptimizer,
    _make_allreduce_grads_fn,
    _make_cached_allreduce_grads_fn,
)
from horovod.tensorflow.mpi_ops import (  # noqa: E402
    Adasum,
    Average,
    Max,
    Min,
    Product,
    Sum,
    _allreduce,
    _check_has_gpu,
    _grouped_allreduce,
    _grouped_reducescatter,
    _reducescatter,
    advise,
    allgather,
    alltoall,
    barrier,
    broadcast,
    broadcast_,
    ccl_built,
    check_num_rank_power_of_2,
    cross_rank,
    cross_size,
    cuda_built,
    ddl_built,
    dump,
    gloo_built,
    gloo_enabled,
    grouped_allgather,
    handle_average_backwards_compatibility,
    init,
    is_homogeneous,
    is_initialized,
    join,
    local_rank,
    local_rank_op,
    local_size,
    local_size_op,
    metrics,
    mpi_built,
    mpi_enabled,
    mpi_threads_supported,
    nccl_built,
    process_set_included_op,
    rank,
    rank_op,
    rocm_built,
    shutdown,
    size,
    size_op,
    snapshot,
    start_timeline,
    stop_timeline,
)
from horovod.tensorflow.reduction import (  # noqa: E402
    _allreduce_cond,
    _grouped_allreduce_cond,
    allreduce,
    grouped_allreduce,
    grouped_reducescatter,
    reducescatter,
)
from horovod.tensorflow.sync_batch_norm import SyncBatchNormalization  # noqa: E402
from horovod.tensorflow.util import (  # noqa: E402
    _cache,
    _executing_eagerly,
    _make_subgraph,
    refs_to_vars,
    vars_to_refs,
)

_IS_TF2 = True


def _get_default_graph():
    return tf.compat.v1.get_default_graph()


def _global_variables():
    return tf.compat.v1.global_variables()
