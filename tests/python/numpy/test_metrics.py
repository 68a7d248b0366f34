# SPDX-License-Identifier: Apache-2.0
"""hvd.metrics(), and the warning about a slow rank."""

import socket

import pytest
from horovod.common import metrics

COUNTS = """
import numpy as np, horovod.numpy as hvd
assert hvd.metrics()["state"] == "not initialised"
hvd.init()
for step in range(20):
    hvd.allreduce(np.ones(100, np.float32), name="a")
    hvd.allreduce(np.ones(50, np.float64), name="b")
hvd.allgather(np.ones(3), name="c")
seen = hvd.metrics()
assert (seen["version"], seen["rank"], seen["size"]) == (1, hvd.rank(), hvd.size())
assert seen["ops"]["allreduce"] == {"count": 40, "bytes": 20 * (400 + 400)}
assert seen["ops"]["allgather"]["count"] == 1
assert seen["steps"]["count"] == 18, seen["steps"]  # between the first and the last that begins
assert seen["steps"]["sum_s"] >= seen["steps"]["last_s"] > 0
assert {t["name"]: t["count"] for t in seen["tensors"]}["allreduce.a"] == 20
assert seen["pending"] == 0 and seen["cpu_s"] > 0
cpu = seen["cpu"]
assert abs(cpu["user_s"] + cpu["system_s"] - seen["cpu_s"]) <= 0.1 + 0.1 * seen["cpu_s"], seen
assert 0 < cpu["cores"] and cpu["age_s"] > 0
assert ("ranks" in seen) == (hvd.rank() == 0)
hvd.barrier()
hvd.shutdown()
"""

SLOW = """
import time
import numpy as np, horovod.numpy as hvd
hvd.init()
for step in range(60):
    time.sleep(0.1 if hvd.rank() == 1 else 0.02)
    hvd.allreduce(np.ones(100), name="a")
    if step == 30 and hvd.rank() == 0:
        print("slow", [r["slow"] for r in hvd.metrics()["ranks"]], flush=True)
hvd.shutdown()
"""


@pytest.mark.parametrize("ranks", [1, 3])
def test_counts(run_script, ranks):
    result = run_script(COUNTS, ranks, deadline_s=120)
    assert result.returncode == 0, result.stdout[-4000:]


LINKS = """
import numpy as np, horovod.numpy as hvd
hvd.init()
for step in range(10):
    hvd.allreduce(np.ones(1 << 18, np.float32), name="a")
assert hvd.metrics()["awaits"] == []
links = {link["rank"]: link for link in hvd.metrics()["links"]}
assert len(links) == 1 and links[1 - hvd.rank()]["transport"] == "tcp", links
for link in links.values():
    for way, busy in (("sent", "send"), ("received", "receive")):
        assert link[f"{way}_bytes"] == 10 << 20, link  # a ring of two sends each half twice
        assert 0 < link[f"{busy}_s"] < 100, link
hvd.shutdown()
"""


def test_links(run_script):
    result = run_script(LINKS, 2, env={"HOROVOD_SHM_DISABLE": "1"}, deadline_s=120)
    assert result.returncode == 0, result.stdout[-4000:]


def test_slow_rank_is_named(run_script):
    result = run_script(SLOW, 3, deadline_s=120)
    assert result.returncode == 0, result.stdout[-4000:]
    assert "slow ['none', 'late submit', 'none']" in result.stdout
    warnings = [line for line in result.stdout.splitlines() if "is slow: it computes" in line]
    assert len(warnings) == 1 and "rank 1" in warnings[0]


def test_slow_rank_check_can_be_disabled(run_script):
    env = {"HOROVOD_SLOW_RANK_CHECK_DISABLE": "1"}
    result = run_script(SLOW.replace("range(60)", "range(20)"), 2, env=env, deadline_s=120)
    assert result.returncode == 0 and "is slow" not in result.stdout


SERVE = """
import http.client, os, socket, stat
import numpy as np, horovod.numpy as hvd
hvd.init()
hvd.allreduce(np.ones(10, np.float32), name="a")

def get(connection, path="/metrics"):
    connection.request("GET", path)
    answer = connection.getresponse()
    return answer.status, answer.read().decode()

path = f"{os.environ['HOROVOD_METRICS_SOCKET']}.rank{hvd.rank()}"
assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
local = http.client.HTTPConnection("localhost")
local.sock = socket.socket(socket.AF_UNIX)
local.sock.connect(path)
status, text = get(local)
assert status == 200
line = f'horovod_bytes_total{{rank="{hvd.rank()}",kind="allreduce"}} 40'
assert line in text.splitlines(), text
port = int(os.environ["HOROVOD_METRICS_PORT"]) + hvd.local_rank()
assert get(http.client.HTTPConnection("127.0.0.1", port))[0] == 200
assert get(http.client.HTTPConnection("127.0.0.1", port), "/other")[0] == 404
hvd.barrier()
print("advice:", hvd.advise(), flush=True)
hvd.shutdown()
"""


def free_port():
    """The first of two ports that are free now."""
    for _ in range(20):
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            try:
                second.bind(("127.0.0.1", first.getsockname()[1] + 1))
            except OSError:
                continue
            return first.getsockname()[1]
    pytest.skip("no two free ports")


def test_prometheus(run_script, tmp_path):
    env = {
        "HOROVOD_METRICS_SOCKET": str(tmp_path / "s"),
        "HOROVOD_METRICS_PORT": str(free_port()),
    }
    result = run_script(SERVE, 2, env=env, deadline_s=120)
    assert result.returncode == 0, result.stdout[-4000:]
    assert "advice: No step has repeated yet." in result.stdout


def measured(alone_s, batches=100, ranks=()):
    return {
        "state": "initialised",
        "steps": {"count": 100, "sum_s": 10.0, "sum_alone_s": alone_s},
        "ops": {"allreduce": {"count": 1000, "bytes": 100 * 1000000}},
        "counters": {"batches": batches, "plan_breaks": 0},
        "ranks": list(ranks),
    }


def test_advice():
    assert "Computing and loading data bound it: 95 %" in metrics.advise(measured(9.5))
    assert "bound it: 100 %" in metrics.advise(measured(10.3))  # a part of the step that runs
    text = metrics.advise(measured(4.0))
    assert "Communication takes 60 % of a step (60.0 ms)" in text and "small" not in text
    assert "small: 10.0 kB on average" in metrics.advise(measured(4.0, batches=10000))
    slow = {"rank": 3, "slow": "late submit", "alone_s": 0.08, "step_s": 0.1, "awaited_s": 0}
    assert "wait for rank 3: it computes" in metrics.advise(measured(4.0, ranks=[slow]))


def test_text_is_escaped():
    text = metrics.prometheus_text({"rank": 0, "transports": [{"name": 'a"b\\', "bytes": 1}]})
    assert 'transport="a\\"b\\\\"} 1' in text


NO_WRITER = """
import sys
import horovod.numpy as hvd
sys.modules.update(dict.fromkeys(("torch", "tensorboardX", "tensorflow")))  # are not there
from horovod.tensorboard import MetricsWriter
for text in ("call hvd.init() before", "pip install tensorboardX"):
    try:
        MetricsWriter("logs")
    except (ImportError, ValueError) as error:
        assert text in str(error), error
    else:
        raise AssertionError(text)
    hvd.init()
hvd.shutdown()
"""


def test_tensorboard_is_not_there(run_script):
    result = run_script(NO_WRITER, 1, deadline_s=120)
    assert result.returncode == 0, result.stdout[-4000:]
