# SPDX-License-Identifier: Apache-2.0
"""Keras callbacks, as classes to mix with the Callback of whichever Keras is used."""

import warnings

import numpy as np

from horovod._keras import optimizer_variables, rate_variables
from horovod._keras.bridge import bridge_of


def _state_of(model):
    """What all ranks must have alike: weights and the optimizer's variables.

    Not the states of random generators, which should differ, nor those of metrics.
    """
    variables = list(getattr(model, "weights", None) or ())
    optimizer = getattr(model, "optimizer", None)
    if optimizer is None:
        return variables
    return variables + optimizer_variables(optimizer) + rate_variables(optimizer)


class BroadcastGlobalVariablesCallbackImpl:
    """After the first batch, when all variables exist, all ranks take those of `root_rank`."""

    def __init__(self, backend, root_rank, device="", *args):
        super().__init__(*args)
        self.backend = backend
        self._bridge = bridge_of(backend)
        self.root_rank = root_rank
        self.device = device
        self.broadcast_done = False
        self._local_vars = set()

    def register_local_var(self, var):
        """This variable is not broadcast."""
        self._local_vars.add(self._bridge.key(var))

    def on_batch_end(self, batch, logs=None):
        if self.broadcast_done:
            return
        self._bridge.before_variables(self.model)
        variables = self._shared(_state_of(self.model))
        self._bridge.broadcast_state(self.backend, variables, self.root_rank, self.device)
        self.broadcast_done = True

    def _shared(self, variables):
        seen, shared = set(self._local_vars), []
        for variable in variables:
            key = self._bridge.key(variable)
            if key in seen or not self._bridge.is_variable(variable):
                continue
            seen.add(key)
            shared.append(variable)
        return shared


def _as_array(value):
    """A metric as numbers; None if it is something else, like a text."""
    value = value.detach().cpu() if hasattr(value, "detach") else value
    value = np.asarray(value)
    is_number = value.dtype.kind in "biuf" or value.dtype.name == "bfloat16"
    return value.astype(np.float64) if is_number else None


class MetricAverageCallbackImpl:
    """At the end of an epoch, metrics become their mean over all ranks."""

    def __init__(self, backend, device="", *args):
        super().__init__(*args)
        self.backend = backend
        self.device = device

    def _average(self, logs):
        values = {name: _as_array(logs[name]) for name in sorted(logs)}
        values = {name: value for name, value in values.items() if value is not None}
        if not values:
            return
        # One vector for all: ranks whose metrics differ in number or size get an error.
        together = np.concatenate([value.reshape(-1) for value in values.values()])
        mean = np.asarray(bridge_of(self.backend).average(self.backend, together, self.device))
        start = 0
        for name, value in values.items():
            part = mean[start : start + value.size]
            logs[name] = part[0] if value.ndim == 0 else part.reshape(value.shape)
            start += value.size

    def on_epoch_end(self, epoch, logs=None):
        if logs:
            self._average(logs)


class _Rate:
    """Reads and sets a hyper-parameter of an optimizer of any Keras."""

    def __init__(self, backend, optimizer, names):
        self._backend = backend
        self._bridge = bridge_of(backend)
        self._optimizer = getattr(optimizer, "inner_optimizer", optimizer)
        self._name = next((name for name in names if hasattr(self._optimizer, name)), None)

    def exists(self):
        return self._name is not None

    def get(self):
        return self._bridge.read(self._backend, getattr(self._optimizer, self._name))

    def set(self, number):
        value = getattr(self._optimizer, self._name)
        if not self._bridge.assign(self._backend, value, number):
            # A plain number: seen by eager steps, by graphs if it is SGD's momentum (momentum.py),
            # and by graphs made from now on.
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
        bridge_of(self.backend).before_variables(self.model)
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
            ranks = bridge_of(backend).basics.size()
            return 1.0 / ranks * (epoch * (ranks - 1) / warmup_epochs + 1)

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
        is_first = bridge_of(self.backend).basics.rank() == 0
        if epoch == self.end_epoch - 1 and self.verbose > 0 and is_first:
            rate = self._rate().get()
            print(
                f"\nEpoch {epoch + 1}: finished gradual learning rate warmup to {rate:g}.",
                flush=True,
            )


def _read_local_variables(bridge, local_variables):
    """A list of variables from None, one variable, or an iterable of them."""
    if local_variables is None:
        return []
    if bridge.is_variable(local_variables):
        return [local_variables]
    variables = list(local_variables)
    if not all(bridge.is_variable(variable) for variable in variables):
        raise ValueError("All local variables must be of tf.Variable type.")
    return variables


# ---- as classes of one Keras ----


def _make_basic(keras):
    class BroadcastGlobalVariablesCallback(
        BroadcastGlobalVariablesCallbackImpl, keras.callbacks.Callback
    ):
        """After the first batch all ranks take the variables of `root_rank`.

        So they start alike, be it from random values or from a checkpoint. Variables in
        `local_variables` stay as they are.
        """

        def __init__(self, root_rank, device="", local_variables=None):
            super().__init__(keras.backend, root_rank, device)
            for variable in _read_local_variables(self._bridge, local_variables):
                self.register_local_var(variable)

    class MetricAverageCallback(MetricAverageCallbackImpl, keras.callbacks.Callback):
        """Averages metrics over all ranks at the end of an epoch.

        Place it before callbacks that look at metrics: ReduceLROnPlateau, TensorBoard,
        ModelCheckpoint.
        """

        def __init__(self, device=""):
            super().__init__(keras.backend, device)

    return BroadcastGlobalVariablesCallback, MetricAverageCallback


def _make_rates(keras):
    class LearningRateScheduleCallback(LearningRateScheduleCallbackImpl, keras.callbacks.Callback):
        """Sets the learning rate to `initial_lr * multiplier` from start_epoch to end_epoch.

        multiplier: a number m, for m ** (epoch - start_epoch), or a function of the epoch.
        staircase: change at the beginning of an epoch only, else with every batch.
        momentum_correction: keep the momentum's effect when the rate changes.
        """

        def __init__(
            self,
            initial_lr,
            multiplier,
            start_epoch=0,
            end_epoch=None,
            staircase=True,
            momentum_correction=True,
            steps_per_epoch=None,
        ):
            super().__init__(
                keras.backend,
                initial_lr,
                multiplier,
                start_epoch,
                end_epoch,
                staircase,
                momentum_correction,
                steps_per_epoch,
            )

    class LearningRateWarmupCallback(LearningRateWarmupCallbackImpl, keras.callbacks.Callback):
        """Raises the learning rate from `initial_lr / size` to `initial_lr` in the first epochs."""

        def __init__(
            self,
            initial_lr,
            warmup_epochs=5,
            momentum_correction=True,
            steps_per_epoch=None,
            verbose=0,
        ):
            super().__init__(
                keras.backend,
                initial_lr,
                warmup_epochs,
                momentum_correction,
                steps_per_epoch,
                verbose,
            )

    return LearningRateScheduleCallback, LearningRateWarmupCallback


def _make_checkpoint(keras):
    class BestModelCheckpoint(keras.callbacks.ModelCheckpoint):
        """A ModelCheckpoint that keeps the best model; set `.filepath` before training."""

        def __init__(
            self,
            monitor="val_loss",
            verbose=0,
            save_weights_only=False,
            mode="auto",
            save_freq="epoch",
        ):
            # Keras 3 wants a name with the right ending at once.
            super().__init__(
                filepath="unset.weights.h5" if save_weights_only else "unset.keras",
                monitor=monitor,
                verbose=verbose,
                save_best_only=True,
                save_weights_only=save_weights_only,
                mode=mode,
                save_freq=save_freq,
            )
            self.filepath = None

    return BestModelCheckpoint


def belongs_to(module, *classes):
    """Lets classes say that they are of the module that offers them, as pickle wants it."""
    for cls in classes:
        cls.__module__, cls.__qualname__ = module, cls.__name__
    return classes


def make(keras, module):
    """The five callbacks for one Keras, in the order in which they stand above."""
    return belongs_to(module, *_make_basic(keras), *_make_rates(keras), _make_checkpoint(keras))
