# SPDX-License-Identifier: Apache-2.0
"""What horovod.keras and horovod.tensorflow.keras share: the optimizer, and loading of models.

Three generations of Keras optimizers are wrapped, each where `model.fit` passes through:

  Keras 3          apply()               gradients come in ready
  Keras 2.11+      compute_gradients()   called by minimize()
  Keras 2 legacy   _compute_gradients()  called by minimize(); get_gradients() in graphs

The wrapper is a subclass made on the fly that shows itself as the class it wraps, so that a saved
model holds no trace of Horovod.
"""

import tensorflow as tf

import horovod.tensorflow as hvd
from horovod._keras import jit, loss_scale
from horovod.common.process_sets import global_process_set
from horovod.tensorflow.gradient_aggregation import LocalGradientAggregationHelper
from horovod.tensorflow.gradient_aggregation_eager import LocalGradientAggregationHelperEager
from horovod.tensorflow.gradients import flatten_grads, reduce_but_local
from horovod.tensorflow.util import _executing_eagerly, tf_variable, variable_key

_IS_TF2 = True
_PRE_TF_2_4_0 = False


class CallableList(list):
    """A list that can also be called, for `optimizer.variables` of all Keras versions."""

    def __call__(self):
        return self


class _Settings:
    """What the user chose; shared by all instances of one wrapped class."""

    def __init__(
        self,
        name,
        allreduce_grads,
        sparse_as_dense,
        backward_passes_per_step,
        average_aggregated_gradients,
        process_set,
        scale_local_gradients,
    ):
        self.name = name
        self.allreduce_grads = allreduce_grads
        self.sparse_as_dense = sparse_as_dense
        self.backward_passes_per_step = backward_passes_per_step
        self.average_aggregated_gradients = average_aggregated_gradients
        self.process_set = process_set
        self.scale_local_gradients = scale_local_gradients

    def make_aggregation(self):
        if self.backward_passes_per_step <= 1:
            return None
        options = {
            "backward_passes_per_step": self.backward_passes_per_step,
            "allreduce_func": self.allreduce_grads,
            "sparse_as_dense": self.sparse_as_dense,
            "average_aggregated_gradients": self.average_aggregated_gradients,
            "process_set": self.process_set,
            "scale_local_gradients": self.scale_local_gradients,
        }
        with tf.init_scope():
            if _executing_eagerly():
                return LocalGradientAggregationHelperEager(**options)
        return LocalGradientAggregationHelper(
            rank=hvd.rank(),
            optimizer_type=LocalGradientAggregationHelper._OPTIMIZER_TYPE_KERAS,
            name=self.name,
            **options,
        )


class _State:
    """What one optimizer needs of Horovod. Kept out of Keras' sight: it is not to be saved."""

    def __init__(self, settings):
        self.settings = settings
        self.local_keys = set()
        self.aggregation = settings.make_aggregation()
        self.is_reduced = False  # the gradients that the next apply gets were reduced before

    def register_local(self, variable):
        self.local_keys.add(variable_key(variable))
        if self.aggregation is not None:
            self.aggregation.register_local_var(variable)

    def reduce(self, grads, variables):
        if self.aggregation is not None:
            return self.aggregation.compute_gradients(list(grads), variables)
        return reduce_but_local(
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
        return self._hvd.reduce(grads, vars)


def _compute_pairs(loss, var_list, tape, grad_loss=None):
    """(gradients, variables) of a loss, as minimize() would compute them."""
    if not callable(loss) and tape is None:
        raise ValueError("`tape` is required when a `Tensor` loss is passed.")
    if callable(loss):
        tape = tape or tf.GradientTape()
        with tape:
            if not callable(var_list):
                tape.watch([tf_variable(v) for v in var_list])
            loss = loss()
    variables = list(var_list() if callable(var_list) else var_list)
    return flatten_grads(tape.gradient(loss, variables, grad_loss)), variables


def _members_keras3(base):
    class Members:
        def apply(self, grads, trainable_variables=None):
            state = self._hvd
            grads = list(grads)
            variables = trainable_variables
            if variables is None:
                variables = self._trainable_variables
            variables = list(variables)
            if not state.is_reduced:
                grads = state.reduce(grads, variables)
            state.is_reduced = False
            if state.aggregation is None:
                return base.apply(self, grads, trainable_variables)
            if not self.built:
                self.build(variables)
            return state.aggregation.apply_gradients(
                lambda: base.apply(self, grads, trainable_variables), self
            )

        def compute_gradients(self, loss, var_list, tape=None):
            """[(reduced gradient, variable)]; the next apply does not reduce again."""
            grads, variables = _compute_pairs(loss, var_list, tape)
            pairs = list(zip(self._hvd.reduce(grads, variables), variables, strict=True))
            self._hvd.is_reduced = True
            return pairs

        def minimize(self, loss, var_list, tape=None):
            return self.apply_gradients(self.compute_gradients(loss, var_list, tape))

        def _compute_gradients(self, loss, var_list, grad_loss=None, tape=None):
            return self.compute_gradients(loss, var_list, tape)

    return Members


def _apply_when_reduced(self, apply, args, kwargs):
    """apply_gradients() of Keras 2: with local aggregation only every n-th time."""
    aggregation = self._hvd.aggregation
    if aggregation is None:
        return apply(*args, **kwargs)
    pairs = list(args[0] if args else kwargs.pop("grads_and_vars"))
    if not getattr(self, "_built", True):
        with tf.init_scope():
            self.build([variable for _, variable in pairs])
    return aggregation.apply_gradients(
        lambda: apply(pairs, *args[1:], **kwargs), self, pairs, *args[1:], **kwargs
    )


def _members_keras2(base):
    class Members:
        def compute_gradients(self, loss, var_list, tape=None):
            pairs = base.compute_gradients(self, loss, var_list, tape)
            grads, variables = map(list, zip(*pairs, strict=True))
            return list(zip(self._hvd.reduce(grads, variables), variables, strict=True))

        def _compute_gradients(self, loss, var_list, grad_loss=None, tape=None):
            return self.compute_gradients(loss, var_list, tape)

        def apply_gradients(self, *args, **kwargs):
            return _apply_when_reduced(
                self, lambda *a, **k: base.apply_gradients(self, *a, **k), args, kwargs
            )

    return Members


def _members_legacy(base):
    class Members:
        def _compute_gradients(self, loss, var_list, grad_loss=None, tape=None):
            pairs = base._compute_gradients(self, loss, var_list, grad_loss, tape)
            grads, variables = map(list, zip(*pairs, strict=True))
            return list(zip(self._hvd.reduce(grads, variables), variables, strict=True))

        def compute_gradients(self, loss, var_list, tape=None):
            return self._compute_gradients(loss, var_list, tape=tape)

        def get_gradients(self, loss, params):
            return self._hvd.reduce(base.get_gradients(self, loss, params), params)

        def apply_gradients(self, *args, **kwargs):
            return _apply_when_reduced(
                self, lambda *a, **k: base.apply_gradients(self, *a, **k), args, kwargs
            )

    return Members


def _members_of(base):
    if hasattr(base, "stateless_apply"):
        return _members_keras3(base)
    if hasattr(base, "_compute_gradients"):
        return _members_legacy(base)
    return _members_keras2(base)


def wrap_class(base, settings):
    """A subclass of an optimizer class that reduces gradients."""
    members = {"__module__": "horovod._keras", "__doc__": base.__doc__}
    for source in (_Wrapped, _members_of(base)):
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
    base = optimizer.__class__
    name = name or f"Distributed{base.__name__}"
    allreduce_grads = hvd._make_allreduce_grads_fn(
        name,
        device_dense,
        device_sparse,
        compression,
        sparse_as_dense,
        op,
        gradient_predivide_factor,
        groups,
        process_set,
    )
    settings = _Settings(
        name,
        allreduce_grads,
        sparse_as_dense,
        backward_passes_per_step,
        average_aggregated_gradients,
        process_set,
        scale_local_gradients,
    )
    wrapped = wrap_class(base, settings).from_config(optimizer.get_config())
    loss_scale.guard(keras)
    jit.guard(keras)
    return wrapped


# ---- values ----


def _eval(backend, op_or_result):
    if _executing_eagerly():
        return op_or_result
    return backend.get_session().run(op_or_result)


def broadcast_global_variables(backend, root_rank):
    return _eval(backend, hvd.broadcast_global_variables(root_rank))


def allreduce(backend, value, name, average, prescale_factor, postscale_factor, op, compression):
    return _eval(
        backend,
        hvd.allreduce(
            tf.constant(value, name=name),
            average=average,
            prescale_factor=prescale_factor,
            postscale_factor=postscale_factor,
            op=op,
            compression=compression,
        ),
    )


def allgather(backend, value, name):
    return _eval(backend, hvd.allgather(tf.constant(value, name=name)))


def broadcast(backend, value, root_rank, name):
    return _eval(backend, hvd.broadcast(tf.constant(value, name=name), root_rank))


def reducescatter(backend, value, name, op):
    return _eval(backend, hvd.reducescatter(tf.constant(value, name=name), op=op))


# ---- models ----


def optimizer_variables(optimizer):
    variables = optimizer.variables
    return list(variables() if callable(variables) else variables)


def _copy_state(source, target, variables):
    """The target gets the slots and counters of the source."""
    if hasattr(target, "_create_all_weights"):  # legacy
        target._create_all_weights(variables)
        target.set_weights(source.get_weights())
        return
    target.build(variables)
    # The source may lack slots: Keras 3 does not bring them back from .h5 files.
    pairs = zip(optimizer_variables(target), optimizer_variables(source), strict=False)
    for to_variable, from_variable in pairs:
        tf_variable(to_variable).assign(tf_variable(from_variable))


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
        _copy_state(optimizer, wrapped, model.trainable_variables)
    model.optimizer = wrapped
    return model
