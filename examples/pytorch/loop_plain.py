# SPDX-License-Identifier: Apache-2.0
# An ordinary training loop; loop_distributed.py is the same on many processes.
import torch
from torch.utils.data import DataLoader, TensorDataset

images, labels = torch.randn(1024, 64), torch.randint(10, (1024,))
data = TensorDataset(images, labels)
model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loader = DataLoader(data, batch_size=32, shuffle=True)

for epoch in range(3):
    for x, y in loader:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    torch.save({"model": model.state_dict(), "epoch": epoch}, "checkpoint.pt")
    print(f"epoch {epoch} done")
