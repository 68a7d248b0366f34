# SPDX-License-Identifier: Apache-2.0
"""Callbacks for stand-alone Keras."""

import keras

from horovod._keras import callbacks as _impl

_K = keras.backend


class BroadcastGlobalVariablesCallback(
    _impl.BroadcastGlobalVariablesCallbackImpl, keras.callbacks.Callback
):
    """After the first batch all ranks take the variables of `root_rank`.

    So they start alike, be it from random values or from a checkpoint. Variables in
    `local_variables` stay as they are.
    """

    def __init__(self, root_rank, device="", local_variables=None):
        super().__init__(_K, root_rank, device)
        for variable in _impl.read_local_variables(local_variables):
            self.register_local_var(variable)


class MetricAverageCallback(_impl.MetricAverageCallbackImpl, keras.callbacks.Callback):
    """Averages metrics over all ranks at the end of an epoch.

    Place it before callbacks that look at metrics: ReduceLROnPlateau, TensorBoard, ModelCheckpoint.
    """

    def __init__(self, device=""):
        super().__init__(_K, device)


class LearningRateScheduleCallback(
    _impl.LearningRateScheduleCallbackImpl, keras.callbacks.Callback
):
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
            _K,
            initial_lr,
            multiplier,
            start_epoch,
            end_epoch,
            staircase,
            momentum_correction,
            steps_per_epoch,
        )


class LearningRateWarmupCallback(_impl.LearningRateWarmupCallbackImpl, keras.callbacks.Callback):
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
            _K, initial_lr, warmup_epochs, momentum_correction, steps_per_epoch, verbose
        )


class BestModelCheckpoint(keras.callbacks.ModelCheckpoint):
    """A ModelCheckpoint that keeps the best model; set `.filepath` before training."""

    def __init__(self, monitor="val_loss", verbose=0, mode="auto", save_freq="epoch"):
        # Keras 3 wants a name with the right ending at once.
        super().__init__(
            filepath="unset.keras",
            monitor=monitor,
            verbose=verbose,
            save_best_only=True,
            save_weights_only=False,
            mode=mode,
            save_freq=save_freq,
        )
        self.filepath = None
