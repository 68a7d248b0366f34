# SPDX-License-Identifier: Apache-2.0
"""An elastic training that some other launcher started: it runs as a plain one. See test_places.py.

With an argument one rank fails by itself, which ends the job, because nobody replaces it.
"""

import sys

import horovod.torch as hvd
import torch

hvd.init()
model = torch.nn.Linear(4, 1)
optimizer = hvd.DistributedOptimizer(
    torch.optim.SGD(model.parameters(), lr=0.1), named_parameters=model.named_parameters()
)
starts = 0


@hvd.elastic.run
def train(state):
    global starts
    starts += 1
    while state.step < 12:
        optimizer.zero_grad()
        model(torch.full((2, 4), float(hvd.rank() + state.step))).sum().backward()
        optimizer.step()
        state.step += 1
        if len(sys.argv) > 1 and state.step == 6 and hvd.rank() == hvd.size() - 1:
            sys.exit(9)
        state.commit()


state = hvd.elastic.TorchState(model, optimizer, step=0)
state.register_reset_callbacks([lambda: print("reset", flush=True)])
train(state)
weights = hvd.allgather_object([p.tolist() for p in model.parameters()])
assert all(other == weights[0] for other in weights) and starts == 1 and state.step == 12
print(f"rank {hvd.rank()} of {hvd.size()} is done", flush=True)
