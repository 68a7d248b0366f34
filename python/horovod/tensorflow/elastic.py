# SPDX-License-Identifier: Apache-2.0
"""Elastic training with TensorFlow: state that survives lost and added workers."""

import functools

import tensorflow as tf

from horovod.common.elastic import ObjectState, run_fn
from horovod.common.exceptions import HorovodInternalError
from horovod.tensorflow.functions import (
    broadcast_object,
    broadcast_object_fn,
    broadcast_variables,
)
from horovod.tensorflow.mpi_ops import _executing_eagerly, init, rank, shutdown
from horovod.tensorflow.util import tf_variable

_IS_TF2 = True


def run(func):
    """Decorates a training function func(state, ...): it starts anew when workers change."""

    @functools.wraps(func)
    def wrapper(state, *args, **kwargs):
        try:
            return func(state, *args, **kwargs)
        except (tf.errors.UnknownError, tf.errors.InternalError) as error:
            # A lost peer; InternalError is what functions compiled by XLA make of it.
            if "Horovod" in error.message:
                raise HorovodInternalError(error) from error
            raise

    return run_fn(wrapper, _reset)


def _reset():
    shutdown()
    init()


def _default_session():
    return None if _executing_eagerly() else tf.compat.v1.get_default_session()


def _global_variables():
    return tf.compat.v1.global_variables()


def _model_built(model):
    return model.built if hasattr(model, "build") else True


def _optimizer_variables(optimizer):
    variables = optimizer.variables
    return variables() if callable(variables) else variables


def _broadcast_model(model, optimizer, backend):
    variables = list(model.variables) + list(_optimizer_variables(optimizer))
    if _executing_eagerly():
        broadcast_variables(variables, root_rank=0)
        return
    session = backend.get_session() if backend is not None else tf.compat.v1.get_default_session()
    session.run(broadcast_variables(variables, root_rank=0))


class TensorFlowKerasState(ObjectState):
    """A Keras model, its optimizer, and any values given as keywords (`batch=0, epoch=0`)."""

    def __init__(self, model, optimizer=None, backend=None, **kwargs):
        if not _model_built(model):
            raise ValueError("Model must be built first. Run `model.build(input_shape)`.")
        self.model = model
        self.optimizer = optimizer or model.optimizer
        self.backend = backend
        self._save_model()
        if not backend or _executing_eagerly():
            bcast = broadcast_object
        else:
            bcast = broadcast_object_fn(session=backend.get_session())
        super().__init__(bcast_object=bcast, get_rank=rank, **kwargs)

    def save(self):
        self._save_model()
        super().save()

    def restore(self):
        self._load_model()
        super().restore()

    def sync(self):
        _broadcast_model(self.model, self.optimizer, self.backend)
        self._save_model()
        super().sync()

    def _save_model(self):
        if _executing_eagerly():
            self._saved_model_state = [tf.identity(tf_variable(v)) for v in self.model.variables]
            self._saved_optimizer_state = [
                tf.identity(tf_variable(v)) for v in _optimizer_variables(self.optimizer)
            ]
        else:
            self._saved_model_state = self.model.get_weights()
            self._saved_optimizer_state = self.optimizer.get_weights()

    def _load_model(self):
        if not _executing_eagerly():
            self.model.set_weights(self._saved_model_state)
            self.optimizer.set_weights(self._saved_optimizer_state)
            return
        for variable, value in zip(self.model.variables, self._saved_model_state, strict=True):
            tf_variable(variable).assign(value)
        # An optimizer makes its variables at the first step; those have nothing to go back to.
        variables = _optimizer_variables(self.optimizer)
        for variable, value in zip(variables, self._saved_optimizer_state, strict=False):
            tf_variable(variable).assign(value)


class TensorFlowState(ObjectState):
    """Any variables, and values given as keywords."""

    def __init__(self, variables=None, session=None, **kwargs):
        self.variables = list(variables) if variables is not None else _global_variables()
        self.session = session or _default_session()
        self._broadcast_op = None
        if not _executing_eagerly():
            self._broadcast_op = broadcast_variables(self.variables, root_rank=0)
        self._save_model()
        is_eager = _executing_eagerly()
        bcast = broadcast_object if is_eager else broadcast_object_fn(session=self.session)
        super().__init__(bcast_object=bcast, get_rank=rank, **kwargs)

    def save(self):
        self._save_model()
        super().save()

    def restore(self):
        self._load_model()
        super().restore()

    def sync(self):
        if self._broadcast_op is not None:
            self.session.run(self._broadcast_op)
        else:
            broadcast_variables(self.variables, root_rank=0)
        self._save_model()
        super().sync()

    def _save_model(self):
        if _executing_eagerly():
            self._values = [tf_variable(v).numpy() for v in self.variables]
        else:
            self._values = self.session.run(self.variables)

    def _load_model(self):
        for variable, value in zip(self.variables, self._values, strict=True):
            if _executing_eagerly():
                tf_variable(variable).assign(value)
            else:
                variable.load(value, self.session)
