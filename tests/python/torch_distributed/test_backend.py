# SPDX-License-Identifier: Apache-2.0
"""The backend `horovod` of torch.distributed, however the ranks are started."""

import json
import sys
from pathlib import Path

import pytest
from launching import launch, run

HERE = Path(__file__).resolve().parent
PROGRAM = HERE / "program.py"


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_ops(run_ranks, ranks):
    run_ranks("ranks_ops.py", ranks)


@pytest.mark.parametrize("ranks", [1, 3])
def test_groups(run_ranks, ranks):
    run_ranks("ranks_groups.py", ranks)


def test_over_tcp(run_ranks):
    run_ranks("ranks_groups.py", 3, {"HOROVOD_SHM_DISABLE": "1"})


@pytest.mark.parametrize("ranks", [2, 4])
def test_stack(run_ranks, ranks):
    run_ranks("ranks_stack.py", ranks)


CASES = [("plain", 1), ("again", 3), ("early", 4), ("forgotten", 2), ("devices", 2)]


@pytest.mark.parametrize("case, ranks", CASES)
def test_torchrun(torchrun, case, ranks):
    result = torchrun(PROGRAM, ranks, case)
    assert result.returncode == 0, result.stdout
    assert result.stdout.count("ended well") == ranks, result.stdout


@pytest.mark.parametrize("case", ["plain", "again"])
def test_horovodrun(case):
    result = launch(2, sys.executable, "-W", "ignore", PROGRAM, case, deadline_s=300)
    assert result.returncode == 0, result.stdout


def test_torchrun_restarts(torchrun):
    result = torchrun(PROGRAM, 2, "restart", options=["--max-restarts=1"])
    assert result.returncode == 0, result.stdout
    for rank in (0, 1):
        assert f"rank {rank} restarted 1" in result.stdout, result.stdout


def test_death_of_a_rank(torchrun):
    result = torchrun(PROGRAM, 3, "death")
    assert result.stdout.count("heard of it") == 2, result.stdout


# ---- importing torch ----

LOOK = """
import json, sys
opened = []
sys.addaudithook(lambda event, args: opened.append(str(args[0])) if event == "open" else None)
import torch
import torch.distributed as dist
with open("/proc/self/maps") as file:
    maps = file.read()
print(json.dumps({
    "files": [path for path in opened if "/horovod/" in path],
    "modules": [name for name in sys.modules if name.startswith("horovod")],
    "is_mapped": "libhorovod" in maps,
    "is_known": "horovod" in dist.Backend.backend_list,
}))
"""


def look(env=None):
    result = run([sys.executable, "-c", LOOK], env, 300)
    return json.loads(result.stdout.splitlines()[-1])


def test_importing_torch_makes_it_known_and_loads_nothing():
    seen = look()
    assert seen["is_known"] and not seen["is_mapped"]
    assert sorted(seen["modules"]) == ["horovod", "horovod._torch_backend"]
    # What PyTorch opens to find entry points of any package is not ours.
    ours = [path for path in seen["files"] if "dist-info" not in path]
    assert len(ours) <= 4, ours


def test_by_hand_where_pytorch_does_not_look():
    without = look({"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"})
    assert not without["is_known"] and without["modules"] == []
    code = "import horovod.torch.distributed, torch.distributed as d; print(d.Backend.backend_list)"
    result = run([sys.executable, "-c", code], {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}, 300)
    assert "horovod" in result.stdout


# ---- PyTorch's own tests ----

SELECTION = (
    *("test_all_reduce_sum", "test_all_reduce_group_sum", "test_all_gather_group"),
    *("test_broadcast_group", "test_send_recv_any_source", "test_send_recv_with_tag"),
    *("test_gather_object", "test_scatter_group", "test_reduce_min"),
    *("test_all_to_all_single*split", "test_monitored_barrier_gloo"),
    *("test_ddp_uneven_inputs*", "test_barrier_group", "test_new_subgroups_by_enumeration"),
)


def test_upstream_selection():
    pytest.importorskip("expecttest")
    command = [sys.executable, "-W", "ignore", HERE / "upstream.py", "horovod"]
    result = run([str(part) for part in (*command, "--world-size", "4", *SELECTION)], None, 800)
    assert result.returncode == 0, result.stdout[-6000:]
    assert "passed" in result.stdout
