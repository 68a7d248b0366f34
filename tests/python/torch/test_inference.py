# SPDX-License-Identifier: Apache-2.0
"""What training saves loads and predicts in a process that has no Horovod."""

import os
import subprocess
import sys

from launching import launch

TRAIN = """
import sys
import horovod.torch as hvd
import torch

hvd.init()
torch.manual_seed(hvd.rank())
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(16, 4)).pow(2).mean().backward()
    optimizer.step()
if hvd.rank() == 0:
    model.eval()
    folder = sys.argv[1]
    torch.save(model.state_dict(), folder + "/model.pt")
    torch.save(optimizer.state_dict(), folder + "/optimizer.pt")
    torch.jit.script(model).save(folder + "/scripted.pt")
    with torch.no_grad():
        torch.save(model(torch.eye(4)), folder + "/expected.pt")
"""

SERVE = """
import sys
sys.modules["horovod"] = None  # any import of it fails
import torch

folder = sys.argv[1]
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 2))
model.load_state_dict(torch.load(folder + "/model.pt"))
model.eval()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
optimizer.load_state_dict(torch.load(folder + "/optimizer.pt"))
assert all("momentum_buffer" in s for s in optimizer.state.values()) and optimizer.state
expected = torch.load(folder + "/expected.pt")
with torch.no_grad():
    assert torch.equal(model(torch.eye(4)), expected)
    assert torch.allclose(torch.jit.load(folder + "/scripted.pt")(torch.eye(4)), expected)
print("served")
"""


def test_saved_models_need_no_horovod(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(TRAIN, encoding="utf-8")
    result = launch(2, sys.executable, script, tmp_path)
    assert result.returncode == 0, result.stdout
    # PyTorch imports the backends of installed packages; ours counts as not installed here.
    env = dict(os.environ, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    command = [sys.executable, "-c", SERVE, str(tmp_path)]
    served = subprocess.run(command, capture_output=True, text=True, timeout=300, env=env)
    assert served.stdout.strip() == "served", served.stderr
