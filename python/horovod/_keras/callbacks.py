# SPDX-License-Identifier: Apache-2.0
"""Keras callbacks, as classes to mix with the Callback of whichever Keras is used."""

import warnings

import numpy as np
import tensorflow as tf

import horovod.tensorflow as hvd
from horovod._keras import optimizer_variables
from horovod.tensorflow.util import _executing_eagerly, tf_variable, variable_key


class BroadcastGlobalVariablesCallbackImpl:
    """After the first batch, when all variables exist, all ranks take those of `root_rank`."""

    def __init__(self, backend, root_rank, device="", *args):
        super().__init__(*args)
        self.backend = backend
        self.root_rank = root_rank
        self.device = device
        self.broadcast_done = False
        self._local_vars = set()

    def register_local_var(self, var):
        """This variable is not broadcast."""
        self._local_vars.add(variable_key(var))

    def on_batch_end(self, batch, logs=None):
        if self.broadcast_done:
            return
        with tf.device(self.device):
            if _executing_eagerly() and hasattr(self.model, "variables"):
                variables = list(self.model.variables)
                optimizer = getattr(self.model, "optimizer", None)
                if optimizer is not None:
                    variables += optimizer_variables(optimizer)
                hvd.broadcast_variables(self._shared(variables), root_rank=self.root_rank)
            else:
                op = hvd.broadcast_global_variables(self.root_rank)
                self.backend.get_session().run(op)
        self.broadcast_done = True

    def _shared(self, variables):
        seen, shared = set(self._local_vars), []
        for variable in variables:
            key = variable_key(variable)
            # Slots of an optimizer are made for its own rank's variables too.
            if key in seen or not hasattr(tf_variable(variable), "assign"):
                continue
            seen.add(key)
            shared.append(variable)
        return shared


class MetricAverageCallbackImpl:
    """At the end of an epoch, metrics become their mean over all ranks."""

    def __init__(self, backend, device="", *args):
        super().__init__(*args)
        self.backend = backend
        self.device = device

    def _average(self, logs):
        names = sorted(name for name, value in logs.items() if np.ndim(value) == 0)
        if not names:
            return
        values = np.array([float(logs[name]) for name in names], dtype=np.float64)
        with tf.device(self.device):
            mean = hvd.allreduce(tf.constant(values), name="metrics", op=hvd.Average)
            if not _executing_eagerly():
                mean = self.backend.get_session().run(mean)
        for name, value in zip(names, np.asarray(mean), strict=True):
            logs[name] = value

    def on_epoch_end(self, epoch, logs=None):
        if logs:
            self._average(logs)


class _Rate:
    """Reads and sets a hyper-parameter of an optimizer of any Keras."""

    def __init__(self, backend, optimizer, names):
        self._backend = backend
        self._optimizer = getattr(optimizer, "inner_optimizer", optimizer)
        self._name = next((name for name in names if hasattr(self._optimizer, name)), None)

    def exists(self):
        return self._name is not None

    def get(self):
        value = getattr(self._optimizer, self._name)
        if not _executing_eagerly() and hasattr(self._backend, "get_value"):
            return float(self._backend.get_value(value))
        return float(np.asarray(tf_variable(value)))

    def set(self, number):
        value = getattr(self._optimizer, self._name)
        if not _executing_eagerly() and hasattr(self._backend, "set_value"):
            self._backend.set_value(value, number)
        elif hasattr(tf_variable(value), "assign"):
            tf_variable(value).assign(number)
        else:
            # A plain number: seen by eager steps, and by graphs made from now on.
            setattr(self._optimizer, self._name, number)


class LearningRateScheduleCallbackImpl:
    """The learning rate is `initial_lr` times `multiplier`, from start_epoch to end_epoch."""

    def __init__(
        self,
        backend,
        initial_lr,
        multiplier,
        start_epoch=0,
        end_epoch=None,
        staircase=True,
        momentum_correction=True,
        steps_per_epoch=None,
        *args,
    ):
        super().__init__(*args)
        if initial_lr is None:
            raise ValueError("Parameter `initial_lr` is required")
        self.backend = backend
        self.initial_lr = initial_lr
        self.start_epoch = start_epoch
        self.end_epoch = end_epoch
        self.staircase = staircase
        self.momentum_correction = momentum_correction
        self.restore_momentum = None
        self.steps_per_epoch = steps_per_epoch
        self.current_epoch = None
        if callable(multiplier):
            self.multiplier = multiplier
        else:
            self.staircase = True
            self.multiplier = lambda epoch: multiplier ** (epoch - start_epoch)

    def _rate(self):
        return _Rate(self.backend, self.model.optimizer, ("learning_rate", "lr"))

    def _momentum(self):
        return _Rate(self.backend, self.model.optimizer, ("momentum",))

    def _autodetect_steps_per_epoch(self):
        if self.params.get("steps"):
            return self.params["steps"]
        if self.params.get("samples") and self.params.get("batch_size"):
            return self.params["samples"] // self.params["batch_size"]
        raise ValueError(
            "Could not autodetect the number of steps per epoch. Please specify the "
            f"steps_per_epoch parameter to the {type(self).__name__}() or upgrade to the latest "
            "version of Keras."
        )

    def _adjust_learning_rate(self, epoch):
        rate = self._rate()
        old = rate.get()
        new = self.initial_lr * self.multiplier(epoch)
        rate.set(new)
        momentum = self._momentum()
        if self.momentum_correction and momentum.exists() and old != 0:
            # Keeps the size of the momentum's steps (Goyal et al., 2017).
            self.restore_momentum = momentum.get()
            momentum.set(self.restore_momentum * new / old)

    def _restore_momentum_if_needed(self):
        if self.restore_momentum is not None:
            self._momentum().set(self.restore_momentum)
            self.restore_momentum = None

    def on_train_begin(self, logs=None):
        if not self.staircase and not self.steps_per_epoch:
            self.steps_per_epoch = self._autodetect_steps_per_epoch()

    def on_epoch_begin(self, epoch, logs=None):
        self.current_epoch = epoch

    def on_batch_begin(self, batch, logs=None):
        if self.current_epoch < self.start_epoch:
            return
        if self.end_epoch is not None and self.current_epoch >= self.end_epoch:
            return
        if self.staircase and batch == 0:
            self._adjust_learning_rate(self.current_epoch)
        elif not self.staircase:
            self._adjust_learning_rate(self.current_epoch + float(batch) / self.steps_per_epoch)

    def on_batch_end(self, batch, logs=None):
        self._restore_momentum_if_needed()

    def on_epoch_end(self, epoch, logs=None):
        if logs is not None:
            logs["lr"] = self._rate().get()


class LearningRateWarmupCallbackImpl(LearningRateScheduleCallbackImpl):
    """The learning rate grows from initial_lr / size to initial_lr over the first epochs."""

    def __init__(
        self,
        backend,
        initial_lr,
        warmup_epochs=5,
        momentum_correction=True,
        steps_per_epoch=None,
        verbose=0,
        *args,
    ):
        def multiplier(epoch):
            # Shifted by a batch, so that the last one of the warm-up has the full rate.
            epoch += 1.0 / self.steps_per_epoch
            return 1.0 / hvd.size() * (epoch * (hvd.size() - 1) / warmup_epochs + 1)

        super().__init__(
            backend,
            initial_lr,
            multiplier,
            0,
            warmup_epochs,
            False,
            momentum_correction,
            steps_per_epoch,
            *args,
        )
        self.verbose = verbose
        if warmup_epochs <= 0:
            warnings.warn("warmup_epochs is 0: there is no warm-up")

    def on_epoch_end(self, epoch, logs=None):
        super().on_epoch_end(epoch, logs)
        if epoch == self.end_epoch - 1 and self.verbose > 0 and hvd.rank() == 0:
            rate = self._rate().get()
            print(
                f"\nEpoch {epoch + 1}: finished gradual learning rate warmup to {rate:g}.",
                flush=True,
            )


def read_local_variables(local_variables):
    """A list of variables from None, one variable, or an iterable of them."""
    if local_variables is None:
        return []
    if hasattr(tf_variable(local_variables), "assign"):
        return [local_variables]
    variables = list(local_variables)
    if not all(hasattr(tf_variable(variable), "assign") for variable in variables):
        raise ValueError("All local variables must be of tf.Variable type.")
    return variables
