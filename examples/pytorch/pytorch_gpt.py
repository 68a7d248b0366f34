#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Train a small GPT-like model to continue text, character by character, on any number of ranks.

    horovodrun -np 2 python pytorch_gpt.py

The text, text.txt beside this file, is made of pages of this project; --text takes another file.
Shows gradient clipping, gradient accumulation and a learning-rate schedule with Horovod: none of
them needs a special call.
"""

import argparse
from pathlib import Path

import horovod.torch as hvd
import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (
            part.view(batch, length, self.heads, -1).transpose(1, 2)
            for part in self.qkv(self.norm1(x)).chunk(3, dim=-1)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.norm2(x))


class Gpt(nn.Module):
    def __init__(self, symbols, length=64, width=96, depth=3, heads=4):
        super().__init__()
        self.tokens = nn.Embedding(symbols, width)
        self.places = nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, symbols, bias=False)

    def forward(self, x):
        places = torch.arange(x.shape[1])
        return self.head(self.norm(self.blocks(self.tokens(x) + self.places(places))))


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--text", type=Path, default=Path(__file__).with_name("text.txt"))
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch-size", type=int, default=8, help="sequences per rank and pass")
    parser.add_argument("--accumulate", type=int, default=2, help="backward passes per step")
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--bf16-allreduce", action="store_true", help="send gradients as bfloat16")
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    hvd.init()
    torch.set_num_threads(1)
    text = arguments.text.read_text(encoding="utf-8")
    symbols = sorted(set(text))
    number_of = {symbol: i for i, symbol in enumerate(symbols)}
    data = torch.tensor([number_of[symbol] for symbol in text])
    torch.manual_seed(1)
    model = Gpt(len(symbols), arguments.length)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.AdamW(model.parameters(), lr=arguments.lr),
        named_parameters=model.named_parameters(),
        backward_passes_per_step=arguments.accumulate,
        compression=hvd.Compression.bf16 if arguments.bf16_allreduce else hvd.Compression.none,
    )
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, arguments.steps)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    generator = torch.Generator().manual_seed(hvd.rank())
    for step in range(arguments.steps):
        optimizer.zero_grad()
        total = 0.0
        for _ in range(arguments.accumulate):
            starts = torch.randint(
                0, len(data) - arguments.length - 1, (arguments.batch_size,), generator=generator
            )
            x = torch.stack([data[s : s + arguments.length] for s in starts.tolist()])
            y = torch.stack([data[s + 1 : s + 1 + arguments.length] for s in starts.tolist()])
            loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten()) / arguments.accumulate
            loss.backward()
            total += loss.item()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        if step % 20 == 0 or step == arguments.steps - 1:
            mean = hvd.allreduce(torch.tensor(total), name="loss").item()
            if hvd.rank() == 0:
                print(f"step {step:4d}  loss {mean:.4f}", flush=True)
    hvd.shutdown()


if __name__ == "__main__":
    main()
