# SPDX-License-Identifier: Apache-2.0
"""A training script for one of three libraries, as their users write it; nothing is downloaded.

    client.py LIBRARY BACKEND FILE

Each rank takes batches of four examples. Without a backend ("none") one process takes batches of
eight, so it sees what two ranks see. Rank 0 writes the parameters and a figure to FILE.
"""

import os
import sys
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

RANKS = 2
EXAMPLES = 48


def make_data():
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(EXAMPLES, 8, generator=generator)
    return TensorDataset(x, x[:, :2].sin())


def make_model():
    torch.manual_seed(2)
    return nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 2))


def use_accelerate(backend, batch):
    from accelerate import Accelerator

    if backend != "none":
        dist.init_process_group(backend)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    loader = DataLoader(make_data(), batch_size=batch, num_workers=1)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for _ in range(2):
        losses = []
        for x, y in loader:
            with accelerator.accumulate(model):
                loss = nn.functional.mse_loss(model(x), y)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
            losses.append(accelerator.gather_for_metrics(loss.detach().reshape(1)).mean())
    return accelerator.unwrap_model(model), torch.stack(losses).mean()


def use_lightning(backend, batch):
    import lightning
    from lightning.pytorch.strategies import DDPStrategy

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = make_model()

        def _loss(self, pair):
            return nn.functional.mse_loss(self.model(pair[0]), pair[1])

        def training_step(self, pair, _):
            return self._loss(pair)

        def validation_step(self, pair, _):
            self.log("loss", self._loss(pair), sync_dist=True)

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)

    is_alone = backend == "none"
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=1 if is_alone else RANKS,
        strategy="auto" if is_alone else DDPStrategy(process_group_backend=backend),
        max_epochs=2,
        num_sanity_val_steps=0,
        gradient_clip_val=1.0,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    module = Module()
    data = make_data()
    # Lightning makes a sampler for its ranks, which shuffles; alone the same order comes from this.
    sampler = DistributedSampler(data, 1, 0) if is_alone else None
    trainer.fit(module, DataLoader(data, batch, sampler=sampler), DataLoader(data, batch))
    return module, trainer.callback_metrics["loss"]


def use_trainer(backend, batch):
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

    if backend != "none":
        dist.init_process_group(backend)
    options = TrainingArguments(
        output_dir=os.path.join(tempfile.gettempdir(), "horovod-trainer"),
        use_cpu=True,
        per_device_train_batch_size=batch,
        per_device_eval_batch_size=batch,
        max_steps=6,
        learning_rate=0.1,
        optim="sgd",  # Adam makes noise of gradients that are 0 up to rounding
        save_strategy="no",
        logging_strategy="no",
        report_to=[],
        disable_tqdm=True,
        seed=3,
    )
    config = GPT2Config(
        vocab_size=32,
        n_positions=16,
        n_embd=16,
        n_layer=1,
        n_head=2,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
    )
    torch.manual_seed(4)
    model = GPT2LMHeadModel(config)
    generator = torch.Generator().manual_seed(5)
    rows = torch.randint(0, 32, (EXAMPLES, 16), generator=generator)
    data = [{"input_ids": row, "labels": row} for row in rows]
    trainer = Trainer(model=model, args=options, train_dataset=data, eval_dataset=data)
    trainer.train()
    return model, torch.tensor(trainer.evaluate()["eval_loss"])


USES = {"accelerate": use_accelerate, "lightning": use_lightning, "trainer": use_trainer}


def check_job(backend, model):
    """The job ran on the backend, and its ranks have the same parameters."""
    assert dist.get_backend() == backend and dist.get_world_size() == RANKS
    flat = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
    rows = [torch.empty_like(flat) for _ in range(RANKS)]
    dist.all_gather(rows, flat)
    assert torch.equal(rows[0], rows[1])


def main():
    library, backend, path = sys.argv[1:]
    torch.set_num_threads(1)
    model, figure = USES[library](backend, 4 if backend != "none" else 4 * RANKS)
    if backend != "none":
        check_job(backend, model)
    if backend == "none" or dist.get_rank() == 0:
        torch.save([p.detach() for p in (*model.parameters(), figure)], path)
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
