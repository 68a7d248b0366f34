# SPDX-License-Identifier: Apache-2.0
"""Init, shutdown, fork, timeline, handles of an earlier life."""

import json
import os
import tempfile
import threading
import time
from pathlib import Path

import horovod.torch as hvd
import pytest
import torch
from horovod.common.library import native


def works(name=None):
    assert hvd.allreduce(torch.ones(3), op=hvd.Sum, name=name).eq(hvd.size()).all()


def descriptors():
    return len(os.listdir("/proc/self/fd"))


def test_import_starts_nothing():
    assert not hvd.is_initialized()
    import subprocess
    import sys

    code = (
        "import os, torch\n"
        "count = lambda: [len(os.listdir('/proc/self/' + name)) for name in ('task', 'fd')]\n"
        "before = count()\n"
        "import horovod.torch\n"
        "assert count() == before\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_init_and_shutdown_repeat():
    hvd.init()
    works()
    hvd.init()
    works()
    hvd.shutdown()
    hvd.shutdown()
    assert not hvd.is_initialized()
    counts = []
    for turn in range(15):
        hvd.init()
        handle = hvd.allreduce_async(torch.ones(2), name="left")
        works("every.life")
        if turn % 2:
            hvd.synchronize(handle)
        hvd.shutdown()
        counts.append(descriptors())
    assert counts[-1] <= counts[2] + 2, counts
    hvd.init()


def test_handles_of_an_earlier_life():
    done = hvd.allreduce_async(torch.ones(2), name="done")
    while not hvd.poll(done):
        time.sleep(0.001)
    lonely = hvd.allreduce_async(torch.ones(2), name=f"lonely.{hvd.rank()}")
    hvd.barrier()
    was_pending = hvd.size() > 1
    hvd.shutdown()
    with pytest.raises(ValueError, match=f"Handle {done} was not created or has been cleared"):
        hvd.synchronize(done)
    if was_pending:
        assert hvd.poll(lonely)
        with pytest.raises(hvd.HorovodInternalError, match="Horovod has been shut down"):
            hvd.synchronize(lonely)
    with pytest.raises(hvd.HorovodInternalError):
        hvd.allreduce(torch.ones(2))
    hvd.init()
    handle = hvd.allreduce_async(torch.ones(2))
    assert handle < 10  # numbering starts anew
    hvd.synchronize(handle)
    works()


def test_fork():
    works()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            assert not hvd.is_initialized()
            with pytest.raises(hvd.HorovodInternalError):
                hvd.allreduce(torch.ones(2))
            hvd.shutdown()
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0
    works()


def test_threads():
    results = {}

    def run(index):
        for i in range(20):
            results[index, i] = hvd.allreduce(
                torch.full((5,), float(index)), op=hvd.Sum, name=f"thread.{index}.{i}"
            )

    threads = [threading.Thread(target=run, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert all(t.eq(index * hvd.size()).all() for (index, _), t in results.items())


def test_gil_is_free_while_waiting():
    if hvd.size() == 1:
        pytest.skip("nobody to wait for")
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(hvd.broadcast_object(folder, 0))
        hvd.barrier()
        threads = []
        if hvd.rank() == 0:  # comes when the others have shown that they run while they wait
            others = [folder / str(rank) for rank in range(1, hvd.size())]
            while not all(path.exists() for path in others):
                time.sleep(0.01)
        else:
            touch = (folder / str(hvd.rank())).touch
            threads = [threading.Timer(0.2, touch)]
            threads[0].start()
        hvd.allreduce(torch.ones(1), name="late")
        for thread in threads:
            thread.join()
        hvd.barrier()


def test_statistics():
    before = native.stats()
    works("stats")
    after = native.stats()
    assert after["ops_completed"] > before["ops_completed"]
    assert after["bytes_reduced"] >= before["bytes_reduced"] + 12


def test_snapshot():
    works("seen")
    look = hvd.snapshot()
    assert (look["version"], look["rank"], look["size"]) == (1, hvd.rank(), hvd.size())
    assert look["state"] == "running" and look["pid"] == os.getpid()
    assert look["counters"]["ops_completed"] > 0
    assert [link["rank"] for link in look["links"]] == [
        rank for rank in range(hvd.size()) if rank != hvd.rank()
    ]
    done = [e for e in look["events"] if e["event"] == "done" and e["name"].endswith("seen")]
    assert len(done) == 1
    hvd.barrier()


def test_timeline_must_be_armed():
    with pytest.raises(ValueError, match="Set HOROVOD_TIMELINE=DYNAMIC to enable dynamic timeline"):
        hvd.start_timeline("file")


def test_timeline(tmp_path):
    hvd.shutdown()
    os.environ["HOROVOD_TIMELINE"] = "DYNAMIC"
    try:
        hvd.init()
    finally:
        del os.environ["HOROVOD_TIMELINE"]
    for turn in range(2):
        path = tmp_path / f"timeline.{turn}.json"
        hvd.start_timeline(str(path), mark_cycles=True)
        hvd.barrier()
        works("test_allreduce")
        hvd.allgather(torch.ones(2), name="test_allgather")
        hvd.barrier()
        hvd.stop_timeline()
        hvd.stop_timeline()
        if hvd.rank() == 0:
            text = path.read_text()
            events = json.loads(text)
            assert "allreduce.test_allreduce" in text and "allgather.test_allgather" in text
            assert "NEGOTIATE_ALLREDUCE" in text
            assert any(event.get("ph") == "B" for event in events)
    hvd.shutdown()
    hvd.init()
    works()


def test_keyboard_interrupt_leaves_a_wait():
    import _thread

    if hvd.size() == 1:
        pytest.skip("nobody to wait for")
    hvd.barrier()
    handle = None
    if hvd.rank() == 0:
        timer = threading.Timer(0.3, _thread.interrupt_main)
        handle = hvd.allreduce_async(torch.ones(1), name="interrupted")
        with pytest.raises(KeyboardInterrupt):
            timer.start()
            hvd.synchronize(handle)
            time.sleep(10)
        timer.join()
    hvd.broadcast_object(None, 0)
    if hvd.rank() != 0:
        handle = hvd.allreduce_async(torch.ones(1), name="interrupted")
    assert hvd.synchronize(handle) == 1


def test_the_end():
    """The process ends without hvd.shutdown(): atexit does it."""
    works()
