# SPDX-License-Identifier: Apache-2.0
"""A program as users write it, for mypy (tools/lint.sh). It is not run.

Each line is wrong on purpose: if a name lost its type, mypy would find the comment unused.
"""

import horovod
import horovod.jax as hvd_jax
import horovod.keras as hvd_keras
import horovod.mxnet as hvd_mxnet
import horovod.numpy as hvd_numpy
import horovod.tensorflow as hvd_tf
import horovod.tensorflow.keras as hvd_tf_keras
import horovod.torch as hvd

rank: str = hvd.rank()  # type: ignore[assignment]
size: str = hvd_tf.size()  # type: ignore[assignment]
local_rank: str = hvd_keras.local_rank()  # type: ignore[assignment]
built: str = hvd_tf_keras.mpi_built()  # type: ignore[assignment]
hvd.init(comm=None, process_sets=3)  # type: ignore[arg-type]
hvd_tf.init(process_sets=3)  # type: ignore[arg-type]
handle: str = hvd.allreduce_async_(None, name="x")  # type: ignore[assignment]
hvd.allreduce(None, name=3)  # type: ignore[arg-type]
hvd.allreduce(None, op="sum")  # type: ignore[arg-type]
hvd.broadcast(None, "0")  # type: ignore[arg-type]
hvd.DistributedOptimizer(None, backward_passes_per_step="2")  # type: ignore[arg-type]
hvd_tf.DistributedGradientTape(None, op=None)  # type: ignore[arg-type]
hvd_keras.DistributedOptimizer(None, sparse_as_dense="no")  # type: ignore[arg-type]
hvd_jax.allreduce(None, name=3)  # type: ignore[arg-type]
hvd_jax.broadcast(None, "0")  # type: ignore[arg-type]
hvd_jax.DistributedOptimizer(None, num_groups="2")  # type: ignore[arg-type]
ended: str = hvd.poll(1)  # type: ignore[assignment]
cross_rank: str = hvd_mxnet.cross_rank()  # type: ignore[assignment]
hvd_mxnet.allreduce(None, priority="high")  # type: ignore[arg-type]
started: str = hvd_numpy.allreduce_async([1.0])  # type: ignore[assignment]
hvd_numpy.broadcast([1.0], "0")  # type: ignore[arg-type]
results: str = horovod.run(print, num_proc=2)  # type: ignore[assignment]
hvd.ProcessSet([0]).size() + 1  # type: ignore[operator]
