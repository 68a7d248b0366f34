# SPDX-License-Identifier: Apache-2.0
"""A small classification problem, and model.fit on a rank's part of it, for any Keras."""

import numpy as np

BATCH = 16
DATA = np.random.RandomState(0).rand(256, 20).astype("float32")
LABELS = (DATA.sum(1) > 10).astype("int32")


class SmallFit:
    def __init__(self, keras, rank, size):
        self.keras, self.rank, self.size = keras, rank, size
        self.loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def my_rows(self, total=256):
        """Rows such that all ranks' batches together are the batches of one process."""
        return np.arange(total).reshape(-1, self.size, BATCH)[:, self.rank].reshape(-1)

    def make_model(self, seed, with_noise=False, width=16):
        layers = self.keras.layers
        self.keras.utils.set_random_seed(seed)
        parts = [layers.Input((20,)), layers.Dense(width, activation="relu")]
        if with_noise:
            parts += [layers.Dropout(0.2), layers.BatchNormalization()]
        return self.keras.Sequential([*parts, layers.Dense(2)])

    def fit_like_alone(self, optimizer, **options):
        """The model after training on all ranks, which one process trains likewise."""
        sgd = self.keras.optimizers.SGD
        model, history = self.fit(optimizer(sgd(0.1, momentum=0.9)), **options)
        alone, history_alone = self.fit(
            sgd(0.1, momentum=0.9), rows=np.arange(256), batch=BATCH * self.size
        )
        assert np.allclose(history["loss"], history_alone["loss"], rtol=1e-4)
        assert np.allclose(history["accuracy"], history_alone["accuracy"])
        for weights, weights_alone in zip(model.get_weights(), alone.get_weights(), strict=True):
            assert np.allclose(weights, weights_alone, atol=1e-4)
        return model

    def fit_with_overflow(self, wrap, scale, is_outside):
        """The model after training in which rank 1 has infinite gradients once."""
        optimizer = self.keras.optimizers.SGD(0.1)
        if is_outside:
            optimizer = wrap(scale(optimizer, initial_scale=4.0))
        else:
            optimizer = scale(wrap(optimizer), initial_scale=4.0)
        model = self.make_model(7)
        rows = self.my_rows()
        data = DATA[rows].copy()
        if self.rank == 1:
            data[BATCH : 2 * BATCH] = np.inf
        model.compile(optimizer=optimizer, loss=self.loss)
        model.fit(data, LABELS[rows], batch_size=BATCH, epochs=1, shuffle=False, verbose=0)
        assert all(np.isfinite(weights).all() for weights in model.get_weights())
        return model

    def watch_rates(self, rate_of, seen):
        """A callback that appends the learning rate after each batch."""

        class Watch(self.keras.callbacks.Callback):
            def on_train_batch_end(self, batch, logs=None):
                seen.append(rate_of(self.model))

        return Watch()

    def check_warmup_and_schedule(self, wrap, callbacks, rate_of):
        """Learning rates of three epochs: one that warms up, one that stays, one of a tenth."""
        seen = []
        steps = 256 // self.size // BATCH
        _, history = self.fit(
            wrap(self.keras.optimizers.SGD(0.1, momentum=0.9)),
            callbacks=[
                callbacks.LearningRateWarmupCallback(0.4, warmup_epochs=1, verbose=1),
                callbacks.LearningRateScheduleCallback(0.4, 0.1, start_epoch=1),
                self.watch_rates(rate_of, seen),
            ],
            epochs=3,
        )
        size = self.size
        expected = [0.4 / size * ((b + 1) / steps * (size - 1) + 1) for b in range(steps)]
        assert np.allclose(seen[:steps], expected)
        assert np.allclose(seen[steps:], [0.4] * steps + [0.04] * steps)
        assert np.allclose(history["lr"], [0.4, 0.4, 0.04])

    def check_elastic_state(self, elastic, optimizer, rows, assert_equal):
        """State that is synchronised, kept by callbacks, and restored. Returns it."""
        model = self.make_model(self.rank)
        model.compile(optimizer=optimizer, loss=self.loss)
        model.fit(DATA[:BATCH], LABELS[:BATCH], verbose=0)
        state = elastic.KerasState(model, batch=0, epoch=self.rank)
        state.sync()
        assert state.epoch == 0
        assert_equal(model.trainable_variables)
        saved = model.get_weights()
        data, options = (DATA[rows], LABELS[rows]), {"batch_size": BATCH, "verbose": 0}
        callbacks = [
            elastic.UpdateBatchStateCallback(state),
            elastic.UpdateEpochStateCallback(state),
        ]
        model.fit(*data, epochs=1, callbacks=callbacks, **options)
        assert state.epoch == 1 and state.batch == 0
        state.restore()
        assert state.epoch == 0
        for restored, weights in zip(model.get_weights(), saved, strict=True):
            assert np.array_equal(restored, weights)
        commit = elastic.CommitStateCallback(state, batches_per_commit=3)
        model.fit(*data, callbacks=[commit], **options)
        return state

    def fit(
        self,
        optimizer,
        seed=7,
        rows=None,
        batch=BATCH,
        callbacks=(),
        epochs=2,
        model=None,
        with_noise=False,
        **options,
    ):
        """(model, history) after training on this rank's rows, or on those that are given."""
        rows = self.my_rows() if rows is None else rows
        model = model or self.make_model(seed, with_noise)
        model.compile(optimizer=optimizer, loss=self.loss, metrics=["accuracy"], **options)
        history = model.fit(
            DATA[rows],
            LABELS[rows],
            batch_size=batch,
            epochs=epochs,
            shuffle=False,
            verbose=0,
            callbacks=list(callbacks),
        )
        return model, history.history
