# SPDX-License-Identifier: Apache-2.0
"""horovod.spark.lightning.TorchEstimator: against one process, on real Spark, and bad input."""

import io
import sys

import cloudpickle
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

torch = pytest.importorskip("torch")
pl = pytest.importorskip("pytorch_lightning")

from horovod.spark.common.backend import LocalBackend  # noqa: E402
from horovod.spark.common.store import LocalStore  # noqa: E402
from horovod.spark.lightning import TorchEstimator, TorchModel  # noqa: E402

cloudpickle.register_pickle_by_value(sys.modules[__name__])

ROWS = 40
EPOCHS = 4


class Module(pl.LightningModule):
    """Trained with two batches of ten rows per rank and step."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.layer = torch.nn.Linear(2, 1)

    def forward(self, x):
        return self.layer(x)

    def loss(self, x, y):
        return torch.nn.functional.mse_loss(self(x), y)

    def training_step(self, batch, batch_idx):
        return self.loss(batch["x"], batch["y"])

    def validation_step(self, batch, batch_idx):
        self.log("val", float(self.global_rank), sync_dist=True)
        return self.loss(batch["x"], batch["y"])

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)]


class Reports(pl.Callback):
    def on_train_epoch_end(self, trainer, module):
        print("epoch", trainer.current_epoch, "rank", trainer.global_rank, trainer.world_size)


def make_rows():
    random = np.random.default_rng(0)
    x = random.normal(size=(ROWS, 2)).astype(np.float32)
    return x, (x @ np.array([1.0, -2.0], np.float32) + 0.5).reshape(-1, 1)


def write_rows(store):
    """A row group per rank: rank 0 has the first half."""
    x, y = make_rows()
    table = pa.table({"x": list(x), "y": list(y)})
    for path in (store.get_train_data_path(), store.get_val_data_path()):
        store.fs.makedirs(path)
        pq.write_table(table, f"{path}/a.parquet", row_group_size=ROWS // 2)


def train_alone():
    """What the ranks do together, with their learning rate, twice that of one."""
    x, y = map(torch.from_numpy, make_rows())
    module = Module()
    (optimizer,), (scheduler,) = module.configure_optimizers()
    optimizer.param_groups[0]["lr"] *= 2
    scheduler.base_lrs = [0.1]
    for _ in range(EPOCHS):
        optimizer.zero_grad()
        module.loss(x, y).backward()
        torch.nn.utils.clip_grad_norm_(module.parameters(), 0.5)
        optimizer.step()
        scheduler.step()
    return module.state_dict()


def make_estimator(store, **given):
    defaults = {
        "model": Module(),
        "feature_cols": ["x"],
        "label_cols": ["y"],
        "batch_size": 10,
        "backward_passes_per_step": 2,
        "shuffle": False,
        "verbose": 0,
        "store": store,
        "backend": LocalBackend(2),
    }
    return TorchEstimator(**{**defaults, **given})


@pytest.fixture
def store(tmp_path):
    return LocalStore(str(tmp_path / "store"))


def test_weights_are_those_of_one_process_over_the_whole_batch(store, capfd):
    write_rows(store)
    options = {
        "run_id": "run",
        "validation": 0.5,
        "callbacks": [Reports()],
        "trainer_args": {"gradient_clip_val": 0.5},
        "log_every_n_steps": 1,
        "debug_data_loader": True,
    }
    first = make_estimator(store, epochs=EPOCHS - 1, **options).fit_on_parquet()
    assert [epoch["epoch"] for epoch in first.getHistory()] == list(range(EPOCHS - 1))
    assert first.getHistory()[0]["logged"]["val"] == 0.5  # the mean of both ranks
    losses = [epoch["validation"]["loss"] for epoch in first.getHistory()]
    assert losses[-1] < losses[0] and "loss" in first.getHistory()[0]["train"]
    output = capfd.readouterr().out
    assert "epoch 2 rank 1 2" in output and "read 2 batches of val data" in output
    saved = torch.load(io.BytesIO(store.read(store.get_checkpoint_path("run"))), weights_only=False)
    assert saved["lr_schedulers"][0]["base_lrs"] == [0.05]  # of one rank
    assert store.exists(f"{store.get_logs_path('run')}/metrics.csv")

    # A second run of the same name goes on with the optimizer and the scheduler of the first.
    second = make_estimator(store, epochs=1, **options).fit_on_parquet()
    assert [epoch["epoch"] for epoch in second.getHistory()] == [EPOCHS - 1]
    for name, expected in train_alone().items():
        torch.testing.assert_close(second.getModel().state_dict()[name], expected)


def test_a_plain_module_on_spark(spark, store, tmp_path):
    x, y = make_rows()
    rows = [(a.tolist(), float(b[0]), 1.0) for a, b in zip(x, y, strict=True)]
    frame = spark.createDataFrame(rows, ["x", "y", "weight"])
    model = torch.nn.Linear(2, 1)
    estimator = make_estimator(
        store,
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        loss=lambda output, label: (output - label) ** 2,
        sample_weight_col="weight",
        epochs=8,
        backend=None,
        num_proc=2,
        backward_passes_per_step=1,
        train_async_data_loader_queue_size=0.5,
    )
    trained = estimator.fit(frame)
    losses = [epoch["train"]["loss"] for epoch in trained.getHistory()]
    assert len(losses) == 8 and losses[-1] < 0.1 * losses[0]
    trained.save(str(tmp_path / "model"))
    again = TorchModel.load(str(tmp_path / "model"))
    found = again.transform(frame).select("y", "y__output").collect()
    assert len(found) == ROWS and np.mean([(row[0] - row[1]) ** 2 for row in found]) < 1.0


def test_a_loss_that_is_not_finite(store):
    write_rows(store)

    class Broken(Module):
        def training_step(self, batch, batch_idx):
            return super().training_step(batch, batch_idx) / (1 - self.global_rank)

    with pytest.raises(RuntimeError, match="terminate_on_nan"):
        make_estimator(store, model=Broken(), terminate_on_nan=True).fit_on_parquet()


def test_parameters(store, tmp_path):
    estimator = make_estimator(store, num_gpus=0)
    estimator.setTrainerArgs({"max_steps": 3}).setLogEveryNSteps(7)
    estimator.save(str(tmp_path / "estimator"))
    again = TorchEstimator.load(str(tmp_path / "estimator"))
    assert again.getTrainerArgs() == {"max_steps": 3} and again.getLogEveryNSteps() == 7
    assert (again.getNumGpus(), again.getTerminateOnNan(), again.getStore()) == (0, False, None)
    for name in estimator._table:
        camel = "".join(part.capitalize() for part in name.split("_"))
        assert callable(getattr(estimator, f"get{camel}"))
        assert callable(getattr(estimator, f"set{camel}"))


@pytest.mark.parametrize(
    "given,text",
    [
        ({"model": torch.nn.Linear(2, 1)}, "loss must be set"),
        ({"trainer_args": {"strategy": "ddp"}}, "trainer_args can't set strategy"),
        ({"num_gpus": 2}, "num_gpus is 2"),
        ({}, "there is no training data"),
    ],
)
def test_bad_parameters(spark, store, given, text):
    with pytest.raises(ValueError, match=text):
        make_estimator(store, **given).fit_on_parquet()


def test_a_parameter_without_effect(spark, store):
    with (
        pytest.warns(UserWarning, match="loader_num_epochs has no effect"),
        pytest.raises(ValueError, match="there is no training data"),
    ):
        make_estimator(store, loader_num_epochs=3).fit_on_parquet()
