#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ranks with different numbers of batches: hvd.join() lets those that are done wait.

horovodrun -np 2 python pytorch_uneven.py
"""

import horovod.torch as hvd
import torch

hvd.init()
torch.manual_seed(0)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
hvd.broadcast_parameters(model.state_dict(), root_rank=0)

# Rank 0 has 20 batches, rank 1 has 25, and so on.
batches = 20 + 5 * hvd.rank()
truth = torch.arange(8.0).unsqueeze(1) / 8
generator = torch.Generator().manual_seed(hvd.rank())
for epoch in range(3):
    for _ in range(batches):
        x = torch.randn(16, 8, generator=generator)
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), x @ truth)
        loss.backward()
        optimizer.step()
    # Until the last rank is here, this one takes part in the others' allreduces with zeros.
    last = hvd.join()
    mean = hvd.allreduce(loss.detach(), name="loss").item()
    if hvd.rank() == 0:
        print(f"epoch {epoch}  loss {mean:.4f}  the last to join was rank {last}", flush=True)

# Ranks that were ahead have missed updates of weights: all take those of the last one.
hvd.broadcast_parameters(model.state_dict(), root_rank=last)
weights = hvd.allgather_object([p.tolist() for p in model.parameters()])
assert all(w == weights[0] for w in weights)
if hvd.rank() == 0:
    print("all ranks have the same weights", flush=True)
