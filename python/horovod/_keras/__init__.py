# SPDX-License-Identifier: Apache-2.0
"""What horovod.keras and horovod.tensorflow.keras share: the optimizer, and loading of models.

Three generations of Keras optimizers are wrapped, each where `model.fit` passes through:

  Keras 3          apply()               gradients come in ready
  Keras 2.11+      compute_gradients()   called by minimize()
  Keras 2 legacy   _compute_gradients()  called by minimize(); get_gradients() in graphs

The wrapper is a subclass made on the fly that shows itself as the class it wraps, so that a saved
model holds no trace of Horovod. What depends on the tensors Keras computes with is in a bridge
(bridge.py). Start reading at create_distributed_optimizer().
"""

import contextlib
import threading
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from horovod._keras import jit, loss_scale
from horovod._keras.bridge import bridge_of
from horovod.common.compression import Compressor
from horovod.common.library import native
from horovod.common.names import QUESTIONS
from horovod.common.process_sets import global_process_set
from horovod.common.reduction import Reduction

_IS_TF2 = True
_PRE_TF_2_4_0 = False

# What both packages offer of the bridge's basics.
BASICS = ("Average", "Compression", "Sum", *QUESTIONS)


class CallableList(list):
    """A list that can also be called, for `optimizer.variables` of all Keras versions."""

    def __call__(self):
        return self


class _Settings(NamedTuple):
    """What the user chose; shared by all instances of one wrapped class."""

    bridge: Any
    how: Reduction
    allreduce_grads: Callable
    backward_passes_per_step: int
    average_aggregated_gradients: bool
    scale_local_gradients: bool

    @property
    def process_set(self):
        return self.how.process_set


# For each thread the states whose gradients somebody further out has reduced.
_inside = threading.local()


class _State:
    """What one optimizer needs of Horovod. Kept out of Keras' sight: it is not to be saved."""

    def __init__(self, settings):
        self.settings = settings
        self.local_keys = set()
        self.aggregation = settings.bridge.make_aggregation(settings)

    @property
    def is_inside(self):
        """Are we called by what has just reduced these gradients?"""
        return id(self) in getattr(_inside, "states", ())

    @contextlib.contextmanager
    def inside(self):
        """Within it, in this thread, the optimizer applies gradients as they come."""
        before = getattr(_inside, "states", frozenset())
        _inside.states = before | {id(self)}
        try:
            yield
        finally:
            _inside.states = before

    @property
    def is_idempotent(self):
        """Would reducing gradients once more give the same ones?"""
        is_scaled = bool(self.local_keys) and self.settings.scale_local_gradients
        return self.settings.how.op == native.AVERAGE and self.aggregation is None and not is_scaled

    def register_local(self, variable):
        self.local_keys.add(self.settings.bridge.key(variable))
        if self.aggregation is not None:
            self.aggregation.register_local_var(variable)

    def reduce_once(self, grads, variables, is_fresh=False):
        """Gradients reduced, but for those that a tape or compute_gradients() has reduced.

        is_fresh: they come from a tape just now, so they are the tensors that it gave.
        """
        grads, variables = list(grads), list(variables)
        is_simple = is_fresh or self.is_idempotent
        todo = self.settings.bridge.not_reduced(grads, variables, is_simple)
        if not todo:
            return grads
        if self.aggregation is not None and len(todo) < len(grads):
            raise ValueError(
                "With backward_passes_per_step > 1 either all gradients or none may have been "
                "reduced before they are applied."
            )
        reduced = self.reduce([grads[i] for i in todo], [variables[i] for i in todo])
        for index, grad in zip(todo, reduced, strict=True):
            grads[index] = grad
        return grads

    def reduce(self, grads, variables):
        if self.aggregation is not None:
            sums = self.aggregation.compute_gradients(list(grads), variables)
            return self.settings.bridge.without_overflow(self.aggregation, sums)
        return self.settings.bridge.reduce_but_local(
            list(grads),
            list(variables),
            self.local_keys,
            self.settings.allreduce_grads,
            self.settings.process_set,
            self.settings.scale_local_gradients,
        )


class _Wrapped:
    """Members of every wrapped optimizer."""

    _HAS_AGGREGATE_GRAD = True
    _hvd_is_wrapped = True

    @property
    def _hvd(self):
        state = self.__dict__.get("_hvd_state")
        if state is None:
            # Past the attribute tracking of Keras.
            state = self.__dict__["_hvd_state"] = _State(self._hvd_settings)
        return state

    @property
    def process_set(self):
        return self._hvd_settings.process_set

    @property
    def scale_local_gradients(self):
        return self._hvd_settings.scale_local_gradients

    @property
    def _allreduce_grads(self):
        return self._hvd_settings.allreduce_grads

    @property
    def _local_vars(self):
        return self._hvd.local_keys

    @property
    def _agg_helper(self):
        return self._hvd.aggregation

    def register_local_var(self, var):
        """Gradients of this variable are not reduced."""
        self._hvd.register_local(var)

    def _allreduce(self, grads, vars):
        """Reduced gradients, marked: apply() does not reduce them again."""
        state, vars = self._hvd, list(vars)
        return state.settings.bridge.mark(state.reduce_once(grads, vars, is_fresh=True), vars)


def _members_keras3(base, bridge):
    class Members:
        def apply(self, grads, trainable_variables=None):
            state = self._hvd
            grads = list(grads)
            variables = trainable_variables
            if variables is None:
                variables = self._trainable_variables
            variables = list(variables)
            if not state.is_inside:
                grads = state.reduce_once(grads, variables)
            if state.aggregation is None:
                return base.apply(self, grads, trainable_variables)
            if not self.built:
                self.build(variables)
            return state.aggregation.apply_gradients(
                lambda: base.apply(self, grads, trainable_variables), self
            )

        def stateless_apply(self, optimizer_variables, grads, trainable_variables):
            state = self._hvd
            if not state.is_inside:
                grads = state.reduce_once(grads, self._trainable_variables)
            # Most optimizers come back to apply(); loss scaling does not, on JAX.
            with state.inside():
                return base.stateless_apply(self, optimizer_variables, grads, trainable_variables)

        def compute_gradients(self, loss, var_list, tape=None):
            """[(reduced gradient, variable)]; apply() does not reduce them again."""
            grads, variables = bridge.compute_gradients(loss, var_list, tape)
            return list(zip(self._allreduce(grads, variables), variables, strict=True))

        def minimize(self, loss, var_list, tape=None):
            return self.apply_gradients(self.compute_gradients(loss, var_list, tape))

        def _compute_gradients(self, loss, var_list, grad_loss=None, tape=None):
            return self.compute_gradients(loss, var_list, tape)

    return Members


def wrap_class(base, settings):
    """A subclass of an optimizer class that reduces gradients."""
    members = {"__module__": "horovod._keras", "__doc__": base.__doc__}
    sources = [_Wrapped, *settings.bridge.members_of(base)]
    if hasattr(base, "stateless_apply"):
        sources.append(_members_keras3(base, settings.bridge))
    for source in sources:
        for name, member in vars(source).items():
            if name not in ("__module__", "__dict__", "__weakref__", "__doc__", "__qualname__"):
                members[name] = member
    members["_hvd_settings"] = settings
    # Keras writes the class of an object into files; that must be one which loads anywhere.
    members["__class__"] = property(lambda self: base)
    return type(base.__name__, (base,), members)


def is_wrapped(optimizer):
    return getattr(type(optimizer), "_hvd_is_wrapped", False)


def create_distributed_optimizer(
    keras,
    optimizer,
    name,
    device_dense,
    device_sparse,
    compression,
    sparse_as_dense,
    gradient_predivide_factor,
    op,
    backward_passes_per_step=1,
    average_aggregated_gradients=False,
    groups=None,
    process_set=global_process_set,
    scale_local_gradients=True,
):
    """A new optimizer with the configuration, not the state, of the given one."""
    how = Reduction(
        *(name, device_dense, device_sparse, compression, sparse_as_dense, op),
        *(gradient_predivide_factor, groups, process_set),
    )
    local = (backward_passes_per_step, average_aggregated_gradients, scale_local_gradients)
    return wrap_optimizer(keras, optimizer, how, *local)


def wrap_optimizer(
    keras,
    optimizer,
    how,
    backward_passes_per_step,
    average_aggregated_gradients,
    scale_local_gradients,
):
    """The same by a Reduction."""
    bridge = bridge_of(keras.backend)
    base = optimizer.__class__
    how = how._replace(name=how.name or f"Distributed{base.__name__}")
    local = (backward_passes_per_step, average_aggregated_gradients, scale_local_gradients)
    settings = _Settings(bridge, how, bridge.make_reducer(how), *local)
    wrapped = wrap_class(base, settings).from_config(optimizer.get_config())
    wrapped._hvd  # noqa: B018 - what does not go together is told now, not in the first step
    loss_scale.guard(keras)
    jit.guard(keras, bridge)
    return wrapped


def check_groups(num_groups, groups):
    """`groups`, or the older `num_groups`, if that makes sense."""
    if num_groups != 0:
        warnings.warn(
            "Parameter `num_groups` has been replaced by `groups` and will be removed in v0.23.0.",
            DeprecationWarning,
            stacklevel=3,
        )
        if groups is None:
            groups = num_groups
    if groups is not None and not isinstance(groups, list) and groups <= 0:
        raise ValueError(
            "groups should be a non-negative integer or a list of list of tf.Variable."
        )
    return groups


def check_op(op):
    """Keras optimizers reduce by these two."""
    if op not in (native.AVERAGE, native.SUM):
        raise ValueError("op currently only supports Average and Sum")


def layers_of(local_layers):
    """A list of layers from None, one layer, or an iterable of them."""
    if local_layers is None:
        return []
    if hasattr(local_layers, "trainable_weights"):
        return [local_layers]
    layers = list(local_layers)
    if not all(hasattr(layer, "trainable_weights") for layer in layers):
        raise ValueError("All local layers must be of tf.keras.layers.Layer type.")
    return layers


# ---- values ----


def _eval(backend, op_or_result):
    return bridge_of(backend).evaluate(backend, op_or_result)


def broadcast_global_variables(backend, root_rank):
    return bridge_of(backend).broadcast_global_variables(backend, root_rank)


def allreduce(backend, value, name, average, prescale_factor, postscale_factor, op, compression):
    return bridge_of(backend).allreduce(
        backend, value, name, average, prescale_factor, postscale_factor, op, compression
    )


def allgather(backend, value, name):
    return bridge_of(backend).allgather(backend, value, name)


def broadcast(backend, value, root_rank, name):
    return bridge_of(backend).broadcast(backend, value, root_rank, name)


def reducescatter(backend, value, name, op):
    return bridge_of(backend).reducescatter(backend, value, name, op)


class Functions:
    """The functions that a package of one Keras offers besides its optimizer."""

    def __init__(self, keras, wrap_optimizer):
        bridge = bridge_of(keras.backend)
        backend, average, none = keras.backend, bridge.basics.Average, bridge.none

        def broadcast_global_variables_of(root_rank: int) -> Any:
            """Graph mode: broadcasts all global variables."""
            return broadcast_global_variables(backend, root_rank)

        def allgather_of(value: Any, name: str | None = None) -> Any:
            """The values of all ranks, concatenated along the first dimension."""
            return allgather(backend, value, name)

        def broadcast_of(value: Any, root_rank: int, name: str | None = None) -> Any:
            """The value of `root_rank`."""
            return broadcast(backend, value, root_rank, name)

        def reducescatter_of(value: Any, name: str | None = None, op: int = average) -> Any:
            """This rank's share of the reduced value."""
            return reducescatter(backend, value, name, op)

        def load_model_of(
            filepath: Any,
            custom_optimizers: Sequence | None = None,
            custom_objects: dict | None = None,
            compression: type[Compressor] = none,
            legacy_opts: bool = False,
        ) -> Any:
            """Loads a saved model; its optimizer is wrapped and keeps its state."""
            return load_model(
                keras,
                lambda optimizer: wrap_optimizer(optimizer, compression=compression),
                filepath,
                custom_optimizers,
                custom_objects,
                legacy_opts,
            )

        self.broadcast_global_variables = broadcast_global_variables_of
        self.allgather = allgather_of
        self.broadcast = broadcast_of
        self.reducescatter = reducescatter_of
        self.load_model = load_model_of


# ---- models ----


def optimizer_variables(optimizer):
    variables = optimizer.variables
    return list(variables() if callable(variables) else variables)


def build_optimizer(optimizer, model):
    """Make the optimizer's variables now, as its first step would.

    In elastic training a worker that has not made a step yet needs as many as the others have.
    """
    if hasattr(optimizer, "_create_all_weights"):  # legacy
        optimizer._create_all_weights(model.trainable_variables)
    elif hasattr(optimizer, "build") and not (
        getattr(optimizer, "built", False) or getattr(optimizer, "_built", False)
    ):
        optimizer.build(model.trainable_variables)


def rate_variables(optimizer):
    """Variables that Keras 2 does not count among an optimizer's: the learning rate, and with
    legacy optimizers all that can be changed while they train."""
    found = []
    while optimizer is not None:
        found.append(getattr(optimizer, "_learning_rate", None))
        hypers = getattr(optimizer, "_hyper", None)
        found += [hypers[name] for name in sorted(hypers)] if isinstance(hypers, dict) else []
        optimizer = getattr(optimizer, "inner_optimizer", None)
    return [value for value in found if hasattr(value, "assign")]


def _copy_state(bridge, source, target, variables):
    """The target gets the slots and counters of the source."""
    if hasattr(target, "_create_all_weights"):  # legacy
        target._create_all_weights(variables)
        target.set_weights(source.get_weights())
        return
    target.build(variables)
    # The source may lack slots: Keras 3 does not bring them back from .h5 files.
    pairs = zip(optimizer_variables(target), optimizer_variables(source), strict=False)
    for to_variable, from_variable in pairs:
        bridge.copy(to_variable, from_variable)


def load_model(
    keras, wrap_optimizer, filepath, custom_optimizers, custom_objects, legacy_opts=False
):
    """Loads a model; its optimizer, with its state, comes back wrapped."""
    objects = {cls.__name__: cls for cls in custom_optimizers or ()}
    objects.update(custom_objects or {})
    model = keras.models.load_model(filepath, custom_objects=objects)
    optimizer = getattr(model, "optimizer", None)
    if optimizer is None or is_wrapped(optimizer):
        return model
    wrapped = wrap_optimizer(optimizer)
    if len(optimizer_variables(optimizer)) > 0:
        _copy_state(bridge_of(keras.backend), optimizer, wrapped, model.trainable_variables)
    model.optimizer = wrapped
    return model
