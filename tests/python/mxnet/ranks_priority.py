# SPDX-License-Identifier: Apache-2.0
"""Of operations that wait for a worker, MXNet's engine starts those with a higher priority first.

The engine must have one worker for them (MXNET_CPU_PRIORITY_NTHREADS=1).
"""

import json
import threading

import horovod.mxnet as hvd
import mxnet as mx
from plug import PRIORITIZED, occupy

hvd.init()


def started(path):
    """The numbers of the operations in the order in which ranks submitted them."""
    text = path.read_text(encoding="utf-8").strip().rstrip(",")
    events = json.loads(text if text.endswith("]") else text + "]")
    names = {e["pid"]: e["args"].get("name", "") for e in events if e.get("name") == "process_name"}
    first = {}
    for event in events:
        name = names.get(event.get("pid"), "")
        if "priority." in name and event.get("ph") == "B":
            first.setdefault(int(name.rpartition(".")[2]), event["ts"])
    return sorted(first, key=first.get)


def test_priorities(tmp_path):
    gate, plug = threading.Event(), mx.nd.ones(1)
    tensors = [mx.nd.ones(2) for _ in range(6)]
    mx.nd.waitall()
    path = tmp_path / "trace.json"
    if hvd.rank() == 0:
        hvd.start_timeline(path)
    hvd.broadcast_object("the trace has begun")  # before anything that it must show
    assert occupy(plug, gate, PRIORITIZED).wait(60)
    for k in [3, 0, 5, 1, 4, 2]:
        hvd.allreduce_(tensors[k], name=f"priority.{k}", op=hvd.Sum, priority=k)
    gate.set()
    for tensor in tensors:
        assert (tensor.asnumpy() == hvd.size()).all()
    if hvd.rank() == 0:
        hvd.stop_timeline()
        assert started(path) == [5, 4, 3, 2, 1, 0]
