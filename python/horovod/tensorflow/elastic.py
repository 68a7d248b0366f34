# SPDX-License-Identifier: Apache-2.0
"""Elastic training with TensorFlow: state that survives lost and added workers."""

import contextlib

import tensorflow as tf

from horovod._keras import build_optimizer, rate_variables
from horovod.common.elastic import (  # noqa: F401 - leave and run_fn are public
    ObjectState,
    QuickCheck,
    given_process_sets,
    leave,
    make_run,
    run_fn,
    sync_root,
)
from horovod.common.exceptions import HorovodInternalError
from horovod.tensorflow.functions import (
    broadcast_object,
    broadcast_object_fn,
    broadcast_variables,
)
from horovod.tensorflow.mpi_ops import _executing_eagerly, init, rank, shutdown
from horovod.tensorflow.util import tf_variable

_IS_TF2 = True


# InternalError is what functions compiled by XLA make of a lost peer, AbortedError what a
# collective raises after another rank has shut down.
_FAILURES = (tf.errors.UnknownError, tf.errors.InternalError, tf.errors.AbortedError)


def _as_failure(error):
    """The HorovodInternalError for what TensorFlow raises when a collective fails; else None."""
    if isinstance(error, _FAILURES) and "Horovod" in error.message:
        return HorovodInternalError(error)
    return None


def _reset():
    shutdown()
    init(process_sets=given_process_sets())


run = make_run(_reset, _as_failure, __name__)


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
    rates = rate_variables(optimizer) if _executing_eagerly() else []
    variables = [*model.variables, *rates, *_optimizer_variables(optimizer)]
    if _executing_eagerly():
        broadcast_variables(variables, root_rank=sync_root())
        return
    session = backend.get_session() if backend is not None else tf.compat.v1.get_default_session()
    session.run(broadcast_variables(variables, root_rank=sync_root()))


class _ModelState(QuickCheck, ObjectState):
    """An ObjectState with something else to save: subclasses have _save_model, _load_model."""

    session = None

    def save(self):
        self._save_model()
        super().save()

    def restore(self):
        self._load_model()
        super().restore()

    def _bcast_from_root(self, value):
        if sync_root() == 0:
            return self._bcast_object(value)
        return broadcast_object(value, sync_root(), session=self.session)


class TensorFlowKerasState(_ModelState):
    """A Keras model, its optimizer, and any values given as keywords (`batch=0, epoch=0`)."""

    def __init__(self, model, optimizer=None, backend=None, **kwargs):
        if not _model_built(model):
            raise ValueError("Model must be built first. Run `model.build(input_shape)`.")
        self.model = model
        self.optimizer = optimizer or model.optimizer
        self.backend = backend
        self._build_optimizer()
        self._save_model()
        if not backend or _executing_eagerly():
            bcast = broadcast_object
        else:
            bcast = broadcast_object_fn(session=backend.get_session())
        super().__init__(bcast_object=bcast, get_rank=rank, **kwargs)

    def sync(self):
        self._build_optimizer()
        _broadcast_model(self.model, self.optimizer, self.backend)
        self._save_model()
        super().sync()

    def _build_optimizer(self):
        if _executing_eagerly():
            build_optimizer(self.optimizer, self.model)

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
        # Old optimizers make their variables at the first step; those have nothing to go back to.
        variables = _optimizer_variables(self.optimizer)
        for variable, value in zip(variables, self._saved_optimizer_state, strict=False):
            tf_variable(variable).assign(value)


class TensorFlowState(_ModelState):
    """Any variables, and values given as keywords."""

    def __init__(self, variables=None, session=None, **kwargs):
        self.variables = list(variables) if variables is not None else _global_variables()
        self.session = session or _default_session()
        self._broadcast_ops = {}  # by root, in graph mode
        if not _executing_eagerly():
            self._broadcast_from(0)
        self._save_model()
        is_eager = _executing_eagerly()
        bcast = broadcast_object if is_eager else broadcast_object_fn(session=self.session)
        super().__init__(bcast_object=bcast, get_rank=rank, **kwargs)

    def sync(self):
        if _executing_eagerly():
            broadcast_variables(self.variables, root_rank=sync_root())
        else:
            self.session.run(self._broadcast_from(sync_root()))
        self._save_model()
        super().sync()

    def _broadcast_from(self, root):
        if root not in self._broadcast_ops:
            with self.session.graph.as_default() if self.session else contextlib.nullcontext():
                self._broadcast_ops[root] = broadcast_variables(self.variables, root_rank=root)
        return self._broadcast_ops[root]

    def _save_model(self):
        if _executing_eagerly():
            self._values = [tf.identity(tf_variable(v)) for v in self.variables]
        else:
            self._values = self.session.run(self.variables)

    def _load_model(self):
        for variable, value in zip(self.variables, self._values, strict=True):
            if _executing_eagerly():
                tf_variable(variable).assign(value)
            else:
                variable.load(value, self.session)
