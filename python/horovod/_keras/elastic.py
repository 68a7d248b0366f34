# SPDX-License-Identifier: Apache-2.0
"""Elastic training with Keras: callbacks that keep a state up to date, and the state itself."""

import numpy as np

from horovod._keras import build_optimizer, optimizer_variables
from horovod._keras.bridge import bridge_of
from horovod._keras.callbacks import belongs_to
from horovod.common.elastic import (
    ObjectState,
    QuickCheck,
    given_process_sets,
    make_run,
    sync_root,
)
from horovod.common.exceptions import HorovodInternalError


class CommitStateCallbackImpl:
    """Commits the state every `batches_per_commit` batches and at the end of each epoch."""

    def __init__(self, backend, state, batches_per_commit, *args):
        super().__init__(*args)
        self.backend = backend
        self.state = state
        self.batches_per_commit = batches_per_commit
        self.batches_remaining = batches_per_commit

    def on_train_begin(self, logs=None):
        self.batches_remaining = self.batches_per_commit

    def on_batch_end(self, batch, logs=None):
        self.batches_remaining -= 1
        if self.batches_remaining == 0:
            self.commit()
            self.batches_remaining = self.batches_per_commit

    def on_epoch_end(self, epoch, logs=None):
        self.commit()

    def commit(self):
        self.state.commit()


class UpdateBatchStateCallbackImpl:
    """Keeps `state.batch`: where in the epoch training is."""

    def __init__(self, backend, state, *args):
        super().__init__(*args)
        self.backend = backend
        self.state = state
        self.steps_per_epoch = None

    def on_train_begin(self, logs=None):
        self.steps_per_epoch = None

    def on_epoch_begin(self, epoch, logs=None):
        if self.params.get("steps"):
            if self.steps_per_epoch is None:
                self.steps_per_epoch = self.params.get("steps")
            self.params["steps"] = self.steps_per_epoch - self.state.batch

    def on_batch_end(self, batch, logs=None):
        self.state.batch = batch

    def on_epoch_end(self, epoch, logs=None):
        self.state.batch = 0


class UpdateEpochStateCallbackImpl:
    """Keeps `state.epoch`: how many epochs are done, over all starts."""

    def __init__(self, backend, state, *args):
        super().__init__(*args)
        self.backend = backend
        self.state = state
        self.initial_epoch = self.state.epoch

    def on_train_begin(self, logs=None):
        self.initial_epoch = self.state.epoch

    def on_epoch_end(self, epoch, logs=None):
        self.state.epoch = self.initial_epoch + epoch + 1


class PlainKerasState(QuickCheck, ObjectState):
    """A model, its optimizer and further values, for Keras on PyTorch and JAX."""

    def __init__(self, model, optimizer=None, backend=None, **kwargs):
        if not model.built:
            raise ValueError("Model must be built first. Run `model.build(input_shape)`.")
        self.model = model
        self.optimizer = optimizer or model.optimizer
        self._backend, self._bridge = backend, bridge_of(backend)
        self._save_model()
        basics = self._bridge.basics
        super().__init__(bcast_object=basics.broadcast_object, get_rank=basics.rank, **kwargs)

    def _variables(self):
        self._bridge.before_variables(self.model)
        build_optimizer(self.optimizer, self.model)
        return list(self.model.variables) + optimizer_variables(self.optimizer)

    def _save_model(self):
        self._values = [np.array(v.numpy()) for v in self._variables()]

    def save(self):
        self._save_model()
        super().save()

    def restore(self):
        for variable, value in zip(self._variables(), self._values, strict=False):
            variable.assign(value)
        super().restore()

    def sync(self):
        self._bridge.broadcast_state(self._backend, self._variables(), sync_root(), "")
        self._save_model()
        super().sync()


def _as_failure(error):
    """JAX raises an error of its own for what a callback has raised, and quotes it."""
    if isinstance(error, RuntimeError) and "HorovodInternalError" in str(error):
        return HorovodInternalError(error)
    return None


def _plain_run(bridge):
    basics = bridge.basics

    def reset():
        basics.shutdown()
        basics.init(process_sets=given_process_sets())

    return make_run(reset, _as_failure)


# ---- as classes of one Keras ----


def make_state(keras, module):
    """(KerasState, run) for one Keras."""
    bridge = bridge_of(keras.backend)
    if bridge.__name__ == "horovod._keras.on_tensorflow":
        from horovod.tensorflow.elastic import TensorFlowKerasState as Base
        from horovod.tensorflow.elastic import run
    else:
        Base, run = PlainKerasState, _plain_run(bridge)  # noqa: N806

    class KerasState(Base):
        """The state of a model, its optimizer and further values given as keywords."""

        def __init__(self, model, optimizer=None, **kwargs):
            super().__init__(model, optimizer=optimizer, backend=keras.backend, **kwargs)

    return *belongs_to(module, KerasState), run


def make(keras, module):
    """The three callbacks for one Keras, in the order in which they stand above."""

    class CommitStateCallback(CommitStateCallbackImpl, keras.callbacks.Callback):
        """Commits the state every `batches_per_commit` batches and at the end of each epoch."""

        def __init__(self, state, batches_per_commit=1):
            super().__init__(keras.backend, state, batches_per_commit)

    class UpdateBatchStateCallback(UpdateBatchStateCallbackImpl, keras.callbacks.Callback):
        """Keeps `state.batch`."""

        def __init__(self, state):
            super().__init__(keras.backend, state)

    class UpdateEpochStateCallback(UpdateEpochStateCallbackImpl, keras.callbacks.Callback):
        """Keeps `state.epoch`."""

        def __init__(self, state):
            super().__init__(keras.backend, state)

    return belongs_to(
        module, CommitStateCallback, UpdateBatchStateCallback, UpdateEpochStateCallback
    )
