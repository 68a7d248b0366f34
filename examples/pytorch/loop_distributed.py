# SPDX-License-Identifier: Apache-2.0
# loop_plain.py on many processes: horovodrun -np 2 python loop_distributed.py
import horovod.torch as hvd
import torch
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

hvd.init()
torch.manual_seed(0)
images, labels = torch.randn(1024, 64), torch.randint(10, (1024,))
data = TensorDataset(images, labels)
model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01 * hvd.size())
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
sampler = DistributedSampler(data, num_replicas=hvd.size(), rank=hvd.rank())
loader = DataLoader(data, batch_size=32, sampler=sampler)

for epoch in range(3):
    sampler.set_epoch(epoch)
    for x, y in loader:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    if hvd.rank() == 0:
        torch.save({"model": model.state_dict(), "epoch": epoch}, "checkpoint.pt")
        print(f"epoch {epoch} done")
