#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two models in one job: even ranks train one, odd ranks the other, and all compare losses.

horovodrun -np 4 python pytorch_process_sets.py
"""

import os

import horovod.torch as hvd
import torch

size = int(os.environ.get("HOROVOD_SIZE", 1))
sets = [hvd.ProcessSet(range(first, size, 2)) for first in (0, 1) if size > 1]
hvd.init(process_sets=sets)  # the same list on every rank
mine = next((s for s in sets if s.included()), hvd.global_process_set)

torch.manual_seed(mine.process_set_id)
width = 4 + 4 * mine.process_set_id
model = torch.nn.Sequential(torch.nn.Linear(4, width), torch.nn.Tanh(), torch.nn.Linear(width, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
optimizer = hvd.DistributedOptimizer(
    optimizer, named_parameters=model.named_parameters(), process_set=mine
)
for name, parameter in model.named_parameters():
    hvd.broadcast_(parameter.data, root_rank=mine.ranks[0], name=name, process_set=mine)
generator = torch.Generator().manual_seed(hvd.rank())
for _ in range(100):
    x = torch.randn(32, 4, generator=generator)
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(x), x.prod(dim=1, keepdim=True))
    loss.backward()
    optimizer.step()

ours = hvd.allreduce(loss.detach(), name="loss", process_set=mine).item()  # of this model
losses = hvd.allgather_object((mine.process_set_id, ours))  # of both
if hvd.rank() == 0:
    for number, value in sorted(set(losses)):
        print(f"model {number}: loss {value:.4f}", flush=True)
