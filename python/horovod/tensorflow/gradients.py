# SPDX-License-Identifier: Apache-2.0
"""Functions and wrappers that reduce gradients: the optimizer of TensorFlow 1 and the tape."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from horovod._keras import check_groups as _check_groups
from horovod._keras import check_op as _check_op
from horovod._keras import layers_of, wrap_optimizer
from horovod.common.compression import Compressor
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.common.reduction import Reduction, chunks_of
from horovod.tensorflow import threads, xla_ops
from horovod.tensorflow.compression import Compression
from horovod.tensorflow.gradient_aggregation import LocalGradientAggregationHelper
from horovod.tensorflow.gradient_aggregation_eager import reduce_but_local
from horovod.tensorflow.mpi_ops import (
    Adasum,
    Average,
    _normalize_name,
    rank,
    rocm_built,
)
from horovod.tensorflow.reduced import mark
from horovod.tensorflow.reduction import _allreduce_cond, _grouped_allreduce_cond, allreduce
from horovod.tensorflow.util import (
    _cache,
    _executing_eagerly,
    _make_subgraph,
    refs_to_vars,
    variable_key,
    vars_to_refs,
)

_LegacyOptimizer = tf.compat.v1.train.Optimizer


# ---- gradients ----


def _names(is_generic, chunk, role):
    """Names by number: a rank may have loaded its model, and then its layers have other names."""
    suffix = "_" + _normalize_name(role) if role else ""
    if is_generic:
        return {"name": f"grad_{chunk[0]}{suffix}", "ignore_name_scope": True}
    if len(chunk) == 1:
        return {"name": f"HorovodAllreduce_grads_{chunk[0]}_0{suffix}"}
    return {"name": f"HorovodGroupedAllreduce_grads_{chunk[0]}_0_grads_{chunk[-1]}_0{suffix}"}


@_cache
def _make_cached_reducer(how):
    groups = refs_to_vars(how.groups) if isinstance(how.groups, tuple) else how.groups
    prescale_factor, postscale_factor = how.scale_factors()
    options = {
        "device_dense": how.device_dense,
        "device_sparse": how.device_sparse,
        "compression": how.compression,
        "op": how.op,
        "prescale_factor": prescale_factor,
        "postscale_factor": postscale_factor,
        "process_set": how.process_set,
    }

    def allreduce_grads(grads, vars=None, use_generic_names=False, role=""):
        # With a slash at its end a scope is the same wherever it is entered.
        with tf.name_scope(how.name + "_Allreduce/"):
            if how.sparse_as_dense:
                grads = [
                    tf.convert_to_tensor(g) if isinstance(g, tf.IndexedSlices) else g for g in grads
                ]
            results = list(grads)
            # XLA runs custom calls one at a time: one call for all is the quick way.
            plan = 1 if xla_ops.is_compiling() and groups is None else groups
            for chunk in chunks_of(results, vars, plan, variable_key):
                names = _names(use_generic_names, chunk, role)
                if len(chunk) == 1:
                    results[chunk[0]] = _allreduce_cond(results[chunk[0]], **options, **names)
                    continue
                reduced = _grouped_allreduce_cond([results[i] for i in chunk], **options, **names)
                for index, result in zip(chunk, reduced, strict=True):
                    results[index] = result
            return results

    if not _executing_eagerly():
        return allreduce_grads
    compiled = _make_subgraph(
        lambda grads, use_generic_names, role: allreduce_grads(grads, None, use_generic_names, role)
    )

    def allreduce_grads_eagerly(grads, vars=None, use_generic_names=False):
        if not _executing_eagerly():
            return allreduce_grads(grads, vars, use_generic_names)
        role = threads.role()
        if isinstance(groups, list):
            return allreduce_grads(grads, vars, use_generic_names, role)
        return compiled(list(grads), use_generic_names, role)

    return allreduce_grads_eagerly


def make_reducer(how: Reduction) -> Callable:
    """A function (grads, vars=None, use_generic_names=False) -> reduced grads."""
    if isinstance(how.groups, list):
        how = how._replace(groups=vars_to_refs(how.groups))
    return _make_cached_reducer(how)


def _make_allreduce_grads_fn(*args, **kwargs):
    """The same with the members of a Reduction as arguments, for programs that call it."""
    return make_reducer(Reduction(*args, **kwargs))


_make_cached_allreduce_grads_fn = _make_allreduce_grads_fn


def _check_predivide(gradient_predivide_factor, op):
    if gradient_predivide_factor == 1.0:
        return
    if rocm_built():
        raise ValueError("gradient_predivide_factor not supported yet with ROCm")
    if op != Average:
        raise ValueError("gradient_predivide_factor not supported with op != Average")


# ---- optimizers of TensorFlow 1 ----


class _DistributedOptimizer(_LegacyOptimizer):
    """Reduces gradients in compute_gradients(), then leaves them to the wrapped optimizer."""

    def __init__(
        self,
        optimizer,
        how,
        use_locking=False,
        backward_passes_per_step=1,
        average_aggregated_gradients=False,
        scale_local_gradients=True,
    ):
        name = how.name or f"Distributed{type(optimizer).__name__}"
        how = how._replace(name=name)
        super().__init__(name=name, use_locking=use_locking)
        self._optimizer = optimizer
        self._allreduce_grads = make_reducer(how)
        self._local_vars = set()
        self.process_set = how.process_set
        self.scale_local_gradients = scale_local_gradients
        self._agg_helper = None
        if backward_passes_per_step > 1:
            if _executing_eagerly():
                raise ValueError(
                    "backward_passes_per_step > 1 is not yet supported for _LegacyOptimizer with "
                    "eager execution."
                )
            self._agg_helper = LocalGradientAggregationHelper(
                backward_passes_per_step=backward_passes_per_step,
                allreduce_func=self._allreduce_grads,
                sparse_as_dense=how.sparse_as_dense,
                average_aggregated_gradients=average_aggregated_gradients,
                rank=rank(),
                optimizer_type=LocalGradientAggregationHelper._OPTIMIZER_TYPE_LEGACY,
                process_set=how.process_set,
                scale_local_gradients=scale_local_gradients,
                name=name,
            )

    def register_local_var(self, var):
        """Gradients of this variable are not reduced."""
        if self._agg_helper is not None:
            self._agg_helper.register_local_var(var)
        else:
            self._local_vars.add(variable_key(var))

    def compute_gradients(self, *args, **kwargs):
        """The wrapped optimizer's gradients, reduced over all ranks."""
        pairs = self._optimizer.compute_gradients(*args, **kwargs)
        if not pairs:
            return pairs
        grads, variables = map(list, zip(*pairs, strict=True))
        if self._agg_helper is not None:
            reduced = self._agg_helper.compute_gradients(grads, variables)
        else:
            reduced = reduce_but_local(
                grads,
                variables,
                self._local_vars,
                self._allreduce_grads,
                self.process_set,
                self.scale_local_gradients,
            )
        return list(zip(reduced, variables, strict=True))

    def apply_gradients(self, *args, **kwargs):
        if self._agg_helper is None:
            return self._optimizer.apply_gradients(*args, **kwargs)
        pairs = list(args[0] if args else kwargs.pop("grads_and_vars"))
        return self._agg_helper.apply_gradients(
            lambda: self._optimizer.apply_gradients(pairs, *args[1:], **kwargs),
            self._optimizer,
            pairs,
            *args[1:],
            **kwargs,
        )

    def get_slot(self, *args, **kwargs):
        return self._optimizer.get_slot(*args, **kwargs)

    def get_slot_names(self, *args, **kwargs):
        return self._optimizer.get_slot_names(*args, **kwargs)

    def variables(self, *args, **kwargs):
        return self._optimizer.variables(*args, **kwargs)


class _DistributedAdasumOptimizer(_LegacyOptimizer):
    """Each rank takes its own step; what is combined by Adasum is the change of the variables."""

    def __init__(
        self,
        optimizer,
        name=None,
        use_locking=False,
        device_dense="",
        compression=Compression.none,
        backward_passes_per_step=1,
    ):
        name = name or f"DistributedDelta{type(optimizer).__name__}"
        super().__init__(name=name, use_locking=use_locking)
        self._optimizer = optimizer
        self._compression = compression
        self._device_dense = device_dense
        self._backward_passes_per_step = backward_passes_per_step

    def compute_gradients(self, *args, **kwargs):
        return self._optimizer.compute_gradients(*args, **kwargs)

    def _start_of(self, variable):
        with tf.compat.v1.variable_scope(self._name, reuse=tf.compat.v1.AUTO_REUSE):
            return tf.compat.v1.get_variable(
                "delta_start_" + variable.op.name.replace("/", "_"),
                initializer=tf.zeros_initializer()(variable.shape, variable.dtype),
                trainable=False,
                use_resource=True,
            )

    def _combine(self, variable, start):
        """Moves the variable to where the ranks' steps together lead."""
        delta = allreduce(
            variable.read_value() - start,
            device_dense=self._device_dense,
            compression=self._compression,
            op=Adasum,
            name="adasum_delta_" + variable.op.name.replace("/", "_"),
        )
        return variable.assign(start + delta)

    def apply_gradients(self, grads_and_vars, global_step=None, name=None):
        grads_and_vars = list(grads_and_vars)
        variables = [v for g, v in grads_and_vars if g is not None]
        starts = [self._start_of(v) for v in variables]
        with tf.compat.v1.variable_scope(self._name, reuse=tf.compat.v1.AUTO_REUSE):
            step_count = tf.compat.v1.get_variable(
                "step_count",
                shape=(),
                dtype=tf.int64,
                trainable=False,
                use_resource=True,
                initializer=tf.compat.v1.zeros_initializer(),
            )
        # What the variables are before the first step of a round is where the round started.
        is_first = tf.equal(step_count % self._backward_passes_per_step, 0)
        began = tf.cond(
            is_first,
            lambda: tf.group(*[s.assign(v) for s, v in zip(starts, variables, strict=True)]),
            tf.no_op,
        )
        with tf.control_dependencies([began]):
            applied = self._optimizer.apply_gradients(grads_and_vars, global_step, name)
        with tf.control_dependencies([applied]):
            count = step_count.assign_add(1)
        with tf.control_dependencies([count]):
            return tf.cond(
                tf.equal(count % self._backward_passes_per_step, 0),
                lambda: tf.group(
                    *[self._combine(v, s) for v, s in zip(variables, starts, strict=True)]
                ),
                tf.no_op,
            )

    def get_slot(self, *args, **kwargs):
        return self._optimizer.get_slot(*args, **kwargs)

    def get_slot_names(self, *args, **kwargs):
        return self._optimizer.get_slot_names(*args, **kwargs)

    def variables(self, *args, **kwargs):
        return self._optimizer.variables(*args, **kwargs)


def DistributedOptimizer(  # noqa: N802
    optimizer: Any,
    name: str | None = None,
    use_locking: bool = False,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = Compression.none,
    sparse_as_dense: bool = False,
    backward_passes_per_step: int = 1,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: int | list | None = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """Wraps an optimizer of TensorFlow 1 or of Keras so that gradients are reduced over all ranks.

    backward_passes_per_step: sum gradients locally over so many passes before they travel.
    groups: how many groups the gradients are reduced in, or a list of lists of variables.
    """
    _check_predivide(gradient_predivide_factor, op)
    if op == Adasum and average_aggregated_gradients:
        raise ValueError("Adasum does not support average_aggregated_gradients == True")
    how = Reduction(
        *(name, device_dense, device_sparse, compression, sparse_as_dense, op),
        *(gradient_predivide_factor, _check_groups(num_groups, groups), process_set),
    )
    local = (backward_passes_per_step, average_aggregated_gradients, scale_local_gradients)
    if isinstance(optimizer, _LegacyOptimizer):
        if op == Adasum:
            if process_set.process_set_id != 0:
                raise NotImplementedError("Adasum does not support process sets yet")
            return _DistributedAdasumOptimizer(
                optimizer, name, use_locking, device_dense, compression, backward_passes_per_step
            )
        return _DistributedOptimizer(optimizer, how, use_locking, *local)
    if op == Adasum:
        raise ValueError("op == Adasum is not supported yet with Keras")
    _check_op(op)
    return wrap_optimizer(tf.keras, optimizer, how, *local)


# ---- the tape ----


class _DistributedGradientTape(tf.GradientTape):
    """Methods for a class that is made anew from the class of the tape that is wrapped."""

    def __init__(
        self,
        tape,
        how,
        scale_local_gradients=True,
        persistent=False,
        watch_accessed_variables=True,
    ):
        super(self.__class__, self).__init__(
            persistent=persistent, watch_accessed_variables=watch_accessed_variables
        )
        self._tape = tape
        self._allreduce_grads = make_reducer(how)
        self._local_sources = set()
        self.process_set = how.process_set
        self.scale_local_gradients = scale_local_gradients

    def register_local_source(self, source):
        """Gradients with respect to this variable are not reduced."""
        self._local_sources.add(variable_key(source))

    def _gradients(self, target, sources, output_gradients):
        return super(self.__class__, self).gradient(target, sources, output_gradients)

    def gradient(self, target, sources, output_gradients=None, use_generic_names=False):
        """Like tf.GradientTape.gradient(), reduced over all ranks."""
        grads = self._gradients(target, sources, output_gradients)
        flat_sources = tf.nest.flatten(sources)
        flat_grads = flatten_grads(grads)
        reduced = reduce_but_local(
            flat_grads,
            flat_sources,
            self._local_sources,
            lambda g, v: self._allreduce_grads(g, v, use_generic_names),
            self.process_set,
            self.scale_local_gradients,
        )
        reduced = mark(reduced, flat_sources)
        if isinstance(sources, (list, tuple)):
            return reduced
        return tf.nest.pack_sequence_as(sources, reduced)

    def get_local_and_global_gradients(
        self, target, sources, output_gradients=None, use_generic_names=False
    ):
        """([(source, gradient)] of local sources, the same of all others)"""
        reduced = self.gradient(target, sources, output_gradients, use_generic_names)
        local, shared = [], []
        for source, grad in zip(sources, reduced, strict=True):
            is_local = variable_key(source) in self._local_sources
            (local if is_local else shared).append((source, grad))
        return local, shared


def flatten_grads(grads):
    """The gradients as a flat list; IndexedSlices are kept whole."""
    if isinstance(grads, (list, tuple)):
        return [leaf for grad in grads for leaf in flatten_grads(grad)]
    if isinstance(grads, dict):
        return [leaf for key in sorted(grads) for leaf in flatten_grads(grads[key])]
    return [grads]


def DistributedGradientTape(  # noqa: N802
    gradtape: tf.GradientTape,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = Compression.none,
    sparse_as_dense: bool = False,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: int | list | None = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> tf.GradientTape:
    """A tape whose gradient() is reduced over all ranks."""
    _check_predivide(gradient_predivide_factor, op)
    how = Reduction(
        *("DistributedGradientTape", device_dense, device_sparse, compression, sparse_as_dense, op),
        *(gradient_predivide_factor, _check_groups(num_groups, groups), process_set),
    )
    return _wrap_tape(gradtape, how, scale_local_gradients)


def _wrap_tape(gradtape, how, scale_local_gradients):
    base = gradtape.__class__
    members = {
        name: member
        for name, member in _DistributedGradientTape.__dict__.items()
        if name not in ("__dict__", "__weakref__")
    }
    cls = type(base.__name__, (base,), members)
    tape = cls(
        *(gradtape._tape, how, scale_local_gradients),
        *(gradtape._persistent, gradtape._watch_accessed_variables),
    )
    # Usable also around the computation: the tape that records is the wrapped one's.
    tape._recording = gradtape._recording
    return tape


def PartialDistributedGradientTape(  # noqa: N802
    gradtape: tf.GradientTape,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = Compression.none,
    sparse_as_dense: bool = False,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: int | list | None = None,
    process_set: ProcessSet = global_process_set,
    local_layers: Any = None,
    scale_local_gradients: bool = True,
) -> tf.GradientTape:
    """A DistributedGradientTape that leaves the weights of `local_layers` to each rank."""
    layers = layers_of(local_layers)
    tape = DistributedGradientTape(
        *(gradtape, device_dense, device_sparse, compression, sparse_as_dense, op),
        *(gradient_predivide_factor, num_groups, groups, process_set, scale_local_gradients),
    )
    for layer in layers:
        for variable in layer.trainable_weights:
            tape.register_local_source(variable)
    return tape
