# SPDX-License-Identifier: Apache-2.0
"""allreduce and reducescatter with averaging, compression and sparse tensors."""

import os
import warnings
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from horovod.common.compression import Compressor, NoneCompressor, wire_of
from horovod.common.names import (
    Adasum,
    Average,
    Sum,
    handle_average_backwards_compatibility,
    is_homogeneous,
    local_size,
    nccl_built,
    size,
)
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.tensorflow.compression import Compression
from horovod.tensorflow.mpi_ops import (
    _allreduce,
    _check_has_gpu,
    _grouped_allreduce,
    _grouped_reducescatter,
    _reducescatter,
    allgather,
    check_num_rank_power_of_2,
    grouped_allgather,
    process_set_included_op,
    size_op,
)
from horovod.tensorflow.util import TensorLike, tf_variable


def _is_elastic():
    """May the number of ranks change while a graph lives?"""
    return os.environ.get("HOROVOD_ELASTIC", "0") not in ("", "0")


def _size_of(process_set, dtype):
    """The set's size as a tensor; ValueError if there is no such set."""
    if _is_elastic():
        return tf.cast(size_op(process_set.process_set_id), dtype=dtype)
    return tf.cast(process_set.size(), dtype=dtype)


def _check_sparse(op):
    if op == Adasum:
        raise NotImplementedError(
            "The Adasum reduction does not currently support sparse tensors. As a workaround "
            "please pass sparse_as_dense=True to DistributedOptimizer"
        )
    if op not in (Average, Sum):
        raise NotImplementedError("Only Sum and Average ops are supported with tf.IndexedSlices")


def _check_sparse_scale(prescale_factor, postscale_factor):
    if prescale_factor != 1.0 or postscale_factor != 1.0:
        raise NotImplementedError("Pre/postscale_factor are not supported with tf.IndexedSlices")


def _check_adasum(device, process_set):
    if process_set.process_set_id != 0:
        raise NotImplementedError("Adasum does not support non-global process sets yet.")
    if "CPU" not in device and _check_has_gpu():
        if nccl_built():
            if not is_homogeneous():
                raise NotImplementedError(
                    "Running GPU Adasum on heterogeneous cluster is not supported yet."
                )
            if not check_num_rank_power_of_2(int(size() / local_size())):
                raise NotImplementedError(
                    "Running GPU Adasum with non-power of 2 nodes is not supported yet."
                )
        else:
            warnings.warn("Adasum reduction without NCCL copies the tensors to the host.")
    elif not check_num_rank_power_of_2(size()):
        raise NotImplementedError("Running Adasum with non-power of 2 ranks is not supported yet.")


def _part(name, what):
    return None if name is None else f"{name}_{what}"


def _gathered_slices(source, values, indices, op, process_set):
    if op == Average:
        values = values / _size_of(process_set, values.dtype)
    return tf.IndexedSlices(values, indices, dense_shape=source.dense_shape)


def _wire_of(compression, op, tensors):
    """How the core is to send float32 tensors; 0: what compress() makes of them."""
    wire = wire_of(compression, op)
    return wire if all(getattr(t, "dtype", None) == tf.float32 for t in tensors) else 0


def allreduce(
    tensor: TensorLike,
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
) -> Any:
    """Reduces a tensor, variable or tf.IndexedSlices over all ranks; by default averages it.

    Sparse tensors are gathered, not added: each rank gets all rows of all ranks.
    """
    op = handle_average_backwards_compatibility(op, average)
    if isinstance(tensor, tf.IndexedSlices):
        _check_sparse(op)
        options: dict[str, Any] = {
            "ignore_name_scope": ignore_name_scope,
            "process_set": process_set,
        }
        with tf.device(device_sparse):
            values = allgather(tensor.values, name=_part(name, "values"), **options)
            indices = allgather(tensor.indices, name=_part(name, "indices"), **options)
            result = _gathered_slices(tensor, values, indices, op, process_set)
        _check_sparse_scale(prescale_factor, postscale_factor)
        return result
    tensor = tf_variable(tensor)
    if process_set.process_set_id is not None:
        process_set.size()  # an unknown set is told here, as a ValueError
    if op == Adasum:
        _check_adasum(getattr(tensor, "device", "") or "", process_set)
    with tf.device(device_dense):
        wire = _wire_of(compression, op, [tensor])
        compression = NoneCompressor if wire else compression
        compressed, context = compression.compress(tensor)
        reduced = _allreduce(
            compressed,
            name=name,
            op=op,
            prescale_factor=prescale_factor,
            postscale_factor=postscale_factor,
            process_set=process_set,
            ignore_name_scope=ignore_name_scope,
            wire=wire,
        )
        return compression.decompress(reduced, context)


def _grouped_slices(slices, name, op, ignore_name_scope, process_set):
    options = {"ignore_name_scope": ignore_name_scope, "process_set": process_set}
    all_values = grouped_allgather(
        [s.values for s in slices], name=_part(name, "values"), **options
    )
    all_indices = grouped_allgather(
        [s.indices for s in slices], name=_part(name, "indices"), **options
    )
    return [
        _gathered_slices(source, values, indices, op, process_set)
        for source, values, indices in zip(slices, all_values, all_indices, strict=True)
    ]


def grouped_allreduce(
    tensors: Sequence[TensorLike],
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
    name: str | None = None,
) -> Sequence:
    """allreduce() of several tensors at once; all or none of them are executed."""
    if not tensors:
        return tensors
    op = handle_average_backwards_compatibility(op, average)
    results = list(tensors)
    sparse = [i for i, t in enumerate(tensors) if isinstance(t, tf.IndexedSlices)]
    dense = [i for i, t in enumerate(tensors) if not isinstance(t, tf.IndexedSlices)]
    if sparse:
        _check_sparse(op)
        with tf.device(device_sparse):
            gathered = _grouped_slices(
                [tensors[i] for i in sparse], name, op, ignore_name_scope, process_set
            )
        _check_sparse_scale(prescale_factor, postscale_factor)
        for index, result in zip(sparse, gathered, strict=True):
            results[index] = result
    if not dense:
        return results
    if op == Adasum:
        for index in dense:
            _check_adasum(getattr(tensors[index], "device", "") or "", process_set)
    with tf.device(device_dense):
        inputs = [tf_variable(tensors[i]) for i in dense]
        wire = _wire_of(compression, op, inputs)
        compression = NoneCompressor if wire else compression
        pairs = [compression.compress(tensor) for tensor in inputs]
        reduced = _grouped_allreduce(
            [compressed for compressed, _ in pairs],
            name=name,
            op=op,
            prescale_factor=prescale_factor,
            postscale_factor=postscale_factor,
            process_set=process_set,
            ignore_name_scope=ignore_name_scope,
            wire=wire,
        )
        for index, result, (_, context) in zip(dense, reduced, pairs, strict=True):
            results[index] = compression.decompress(result, context)
    return results


def reducescatter(
    tensor: TensorLike,
    device_dense: str = "",
    compression: type[Compressor] = Compression.none,
    op: int = Average,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Any:
    """Reduces over all ranks and gives each its share of the first dimension."""
    with tf.device(device_dense):
        compressed, context = compression.compress(tf_variable(tensor))
        reduced = _reducescatter(
            compressed,
            name=name,
            op=op,
            process_set=process_set,
            ignore_name_scope=ignore_name_scope,
            prescale_factor=prescale_factor,
            postscale_factor=postscale_factor,
        )
        return compression.decompress(reduced, context)


def grouped_reducescatter(
    tensors: Sequence[TensorLike],
    device_dense: str = "",
    compression: type[Compressor] = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Sequence:
    """reducescatter() of several tensors at once."""
    if not tensors:
        return tensors
    with tf.device(device_dense):
        pairs = [compression.compress(tf_variable(tensor)) for tensor in tensors]
        reduced = _grouped_reducescatter(
            [compressed for compressed, _ in pairs],
            op=op,
            process_set=process_set,
            prescale_factor=prescale_factor,
            postscale_factor=postscale_factor,
        )
        return [
            compression.decompress(result, context)
            for result, (_, context) in zip(reduced, pairs, strict=True)
        ]


# ---- only if there is somebody to reduce with ----


def _is_shared(process_set):
    """Is this rank in the set, and not alone there? A tensor if that may change."""
    if _is_elastic():
        with tf.device("/cpu:0"):
            set_id = process_set.process_set_id
            return tf.logical_and(
                tf.equal(process_set_included_op(set_id), 1), tf.greater(size_op(set_id), 1)
            )
    is_included = process_set.process_set_id == 0 or process_set.included()
    return is_included and process_set.size() > 1


def _if_shared(process_set, communicate, keep):
    condition = _is_shared(process_set)
    if isinstance(condition, bool):
        return communicate() if condition else keep()
    return tf.cond(condition, communicate, keep)


def _allreduce_cond(tensor, *args, process_set=global_process_set, **kwargs):
    return _if_shared(
        process_set,
        lambda: allreduce(tensor, *args, process_set=process_set, **kwargs),
        lambda: tensor,
    )


def _grouped_allreduce_cond(tensors, *args, process_set=global_process_set, **kwargs):
    return _if_shared(
        process_set,
        lambda: grouped_allreduce(tensors, *args, process_set=process_set, **kwargs),
        lambda: tensors,
    )
