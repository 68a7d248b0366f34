# SPDX-License-Identifier: Apache-2.0
"""Broadcasting variables and Python objects."""

import io
from collections.abc import Callable, Sequence
from typing import Any

import cloudpickle
import numpy as np
import tensorflow as tf

from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.tensorflow import threads
from horovod.tensorflow.mpi_ops import allgather, broadcast, broadcast_
from horovod.tensorflow.util import _executing_eagerly, tf_variable

_SessionRunHook = getattr(
    getattr(tf, "estimator", None), "SessionRunHook", tf.compat.v1.train.SessionRunHook
)


def _assign_broadcast(variable, root_rank, process_set):
    variable = tf_variable(variable)
    return variable.assign(broadcast(variable, root_rank, process_set=process_set))


def _broadcast_inplace(variables, root_rank, process_set):
    by_device = {}
    for variable in variables:
        by_device.setdefault(tf_variable(variable).device, []).append(variable)
    return [
        value
        for group in by_device.values()
        for value in broadcast_(group, root_rank, process_set=process_set)
    ]


def broadcast_variables(
    variables: Sequence,
    root_rank: int,
    process_set: ProcessSet = global_process_set,
    inplace: bool = False,
) -> Any:
    """Sets variables (TensorFlow's or Keras') on all ranks to their values on `root_rank`.

    In graph mode the result is an op that has to be run.
    """
    variables = list(variables)
    if inplace:
        updates = _broadcast_inplace(variables, root_rank, process_set)
    else:
        updates = [_assign_broadcast(v, root_rank, process_set) for v in variables]
    return None if _executing_eagerly() else tf.group(*updates)


def broadcast_global_variables(root_rank: int) -> Any:
    """Graph mode: an op that broadcasts all global variables."""
    if _executing_eagerly():
        raise RuntimeError(
            "hvd.broadcast_global_variables() does not support eager execution. Please use "
            "`hvd.broadcast_variables(<model/optimizer variables>)` instead."
        )
    return broadcast_variables(tf.compat.v1.global_variables(), root_rank)


class BroadcastGlobalVariablesHook(_SessionRunHook):
    """Broadcasts all global variables from `root_rank` once the session exists.

    So all workers start from the same values, be they random or from a checkpoint.
    """

    def __init__(self, root_rank: int, device: str = "") -> None:
        super().__init__()
        self.root_rank = root_rank
        self.bcast_op = None
        self.device = device

    def begin(self) -> None:
        """Make the op that broadcasts; called by the session."""
        graph = tf.compat.v1.get_default_graph()
        if self.bcast_op is None or self.bcast_op.graph != graph:
            with tf.device(self.device):
                self.bcast_op = broadcast_global_variables(self.root_rank)

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Broadcast; called by the session."""
        session.run(self.bcast_op)


# ---- objects ----


def _dump(obj):
    buffer = io.BytesIO()
    cloudpickle.dump(obj, buffer)
    return np.frombuffer(buffer.getvalue(), dtype=np.uint8)


def _load(array):
    return cloudpickle.loads(np.asarray(array).tobytes())


def _session(session):
    session = session or tf.compat.v1.get_default_session()
    if session is None:
        raise ValueError("In graph mode a session is needed: pass one, or make one the default.")
    return session


def _evaluate(tensor, session):
    return tensor.numpy() if _executing_eagerly() else _session(session).run(tensor)


def _is_root(root_rank):
    from horovod.tensorflow.mpi_ops import rank

    return rank() == root_rank


def broadcast_object(
    obj: Any,
    root_rank: int = 0,
    session: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """A Python object of `root_rank`, on all ranks."""
    # The type's name would differ between ranks that hold different types.
    name = name or threads.named("broadcast_object")
    is_root = _is_root(root_rank)
    data = _dump(obj) if is_root else np.zeros(0, dtype=np.uint8)
    count = broadcast(
        tf.constant([data.size], dtype=tf.int64), root_rank, name + ".sz", process_set=process_set
    )
    size = int(_evaluate(count, session)[0])
    if not is_root:
        data = np.zeros(size, dtype=np.uint8)
    received = broadcast(
        tf.constant(data, dtype=tf.uint8), root_rank, name + ".t", process_set=process_set
    )
    received = _evaluate(received, session)
    return obj if is_root else _load(received)


def broadcast_object_fn(
    root_rank: int = 0,
    session: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Callable[[Any], Any]:
    """Graph mode: a function obj -> obj whose ops are made only once."""
    name = name or "broadcast_object_fn"
    count_in = tf.compat.v1.placeholder(tf.int64, [1])
    data_in = tf.compat.v1.placeholder(tf.uint8, [None])
    count_out = broadcast(count_in, root_rank, name + ".sz", process_set=process_set)
    data_out = broadcast(data_in, root_rank, name + ".t", process_set=process_set)

    def _bcast(obj):
        run = _session(session).run
        is_root = _is_root(root_rank)
        data = _dump(obj) if is_root else np.zeros(0, dtype=np.uint8)
        size = int(run(count_out, feed_dict={count_in: [data.size]})[0])
        if not is_root:
            data = np.zeros(size, dtype=np.uint8)
        received = run(data_out, feed_dict={data_in: data})
        return obj if is_root else _load(received)

    return _bcast


def allgather_object(
    obj: Any,
    session: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> list:
    """The objects of all ranks as a list, by rank in the set."""
    name = name or threads.named("allgather_object")
    data = _dump(obj)
    sizes = allgather(
        tf.constant([data.size], dtype=tf.int64), name=name + ".sz", process_set=process_set
    )
    gathered = allgather(
        tf.constant(data, dtype=tf.uint8), name=name + ".t", process_set=process_set
    )
    if _executing_eagerly():
        sizes, gathered = sizes.numpy(), gathered.numpy()
    else:
        sizes, gathered = _session(session).run([sizes, gathered])
    ends = np.cumsum(sizes)
    return [_load(gathered[end - n : end]) for n, end in zip(sizes, ends, strict=True)]
