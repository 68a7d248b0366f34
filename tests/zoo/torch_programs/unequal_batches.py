# SPDX-License-Identifier: Apache-2.0
"""Rank 1 has fewer batches, and goes on to the validation while the others still train."""

import horovod.torch as hvd
import torch

hvd.init()
model = torch.nn.Linear(4, 1)
optimizer = hvd.DistributedOptimizer(
    torch.optim.SGD(model.parameters(), lr=0.1), named_parameters=model.named_parameters()
)
for _ in range(6 - 2 * (hvd.rank() == 1)):
    optimizer.zero_grad()
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()  # WAITS
hvd.allreduce(torch.ones(1), name="validation")  # HERE
