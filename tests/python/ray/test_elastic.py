# SPDX-License-Identifier: Apache-2.0
"""Elastic jobs on a real Ray cluster: ranks and nodes that are lost, and nodes that come."""

import os
import sys
import threading
import time
from pathlib import Path

import cloudpickle
import pytest
import ray
from horovod.common.elastic import ObjectState
from horovod.ray import ElasticRayExecutor, RayExecutor, elastic_v2, ray_logger
from horovod.ray.elastic import RayHostDiscovery, TestDiscovery
from horovod.runner.elastic.discovery import HostDiscovery

cloudpickle.register_pickle_by_value(sys.modules[__name__])


def train(folder, steps, how):
    """Counts steps; `how(folder, step)` may do harm."""
    import horovod.numpy as hvd
    import numpy as np
    from horovod.common.elastic import run_fn

    hvd.init()
    (Path(folder) / f"pid.{os.getpid()}").write_text("")
    state = ObjectState(hvd.broadcast_object, hvd.rank, step=0, total=0.0, sizes=[])

    def loop(state):
        while state.step < steps:
            state.total += float(hvd.allreduce(np.ones(1), name="x")[0])
            state.step += 1
            state.sizes = [*state.sizes, hvd.size()]
            how(Path(folder), state.step)
            state.commit()
            time.sleep(0.02)
        return hvd.rank(), state.step, state.total, state.sizes

    def reset():
        hvd.shutdown()
        hvd.init()

    return run_fn(loop, reset)(state)


def fail_once(folder, step):
    if step == 5 and os.environ["HOROVOD_RANK"] == "1" and not (folder / "failed").exists():
        (folder / "failed").write_text("")
        os._exit(3)


def wait_for(path, thread):
    deadline = time.monotonic() + 300
    while not path.exists():
        assert thread.is_alive(), "the job has ended"
        assert time.monotonic() < deadline, f"{path.name} did not happen"
        time.sleep(0.05)


def wait_until_ray_knows(cluster):
    """Ray notices a killed node when its heartbeats are missing; until then it uses that node."""
    deadline = time.monotonic() + 120
    while sum(node["Alive"] for node in ray.nodes()) > len(cluster.list_all_nodes()):
        assert time.monotonic() < deadline, "Ray has not noticed that a node was killed"
        time.sleep(0.2)


def test_a_lost_rank_is_replaced(cluster, tmp_path):
    e = RayExecutor(RayExecutor.create_settings(), min_workers=1, max_workers=2)
    e.start(extra_env_vars={"OF_THE_JOB": "1"})
    results = e.run(train, [str(tmp_path), 20, fail_once])
    assert results[0][1:3] == (20, 20.0)
    assert (tmp_path / "failed").exists()
    e.shutdown()


def test_a_node_that_comes_and_one_that_is_lost(cluster, tmp_path):
    def watch(folder, step, size):
        if step == 5:
            (folder / "step5").write_text("")
        if size == 6:
            (folder / "six").write_text("")
        if (folder / "six").exists() and size == 4:
            (folder / "four again").write_text("")

    def until_four_again(folder):
        import horovod.numpy as hvd
        import numpy as np
        from horovod.common.elastic import run_fn

        folder = Path(folder)
        hvd.init()
        state = ObjectState(hvd.broadcast_object, hvd.rank, step=0, is_over=False, sizes=[])

        def loop(state):
            while not state.is_over:
                hvd.allreduce(np.ones(1), name="x")
                state.step += 1
                state.sizes = [*state.sizes, hvd.size()]
                watch(folder, state.step, hvd.size())
                done = np.array([float((folder / "four again").exists())])
                state.is_over = bool(hvd.allreduce(done, name="over", op=hvd.Max)[0])
                state.commit()
                time.sleep(0.02)
            return state.sizes

        def reset():
            hvd.shutdown()
            hvd.init()

        return run_fn(loop, reset)(state)

    results = []
    e = RayExecutor(RayExecutor.create_settings(), min_workers=4, elastic_timeout=120)
    e.start()
    thread = threading.Thread(
        target=lambda: results.extend(e.run(until_four_again, [str(tmp_path)])), daemon=True
    )
    thread.start()
    wait_for(tmp_path / "step5", thread)
    node = cluster.add_node(num_cpus=2, object_store_memory=100 << 20, node_ip_address="10.77.0.1")
    wait_for(tmp_path / "six", thread)
    cluster.remove_node(node, allow_graceful=False)
    thread.join(300)
    assert len(results) == 4
    sizes = results[0]
    changes = [size for size, before in zip(sizes, [0, *sizes], strict=False) if size != before]
    assert (changes[0], max(changes), changes[-1]) == (4, 6, 4)
    wait_until_ray_knows(cluster)


def test_old_executor_with_callbacks_gpus_and_discovery(cluster, tmp_path):
    def work():
        import horovod.numpy as hvd

        hvd.init()
        ray_logger.log({"rank": hvd.rank()})
        result = hvd.rank(), os.environ["A"], os.environ["CUDA_VISIBLE_DEVICES"]
        hvd.barrier()
        return result

    class Chosen(HostDiscovery):
        def find_available_hosts_and_slots(self):
            return dict.fromkeys(RayHostDiscovery(use_gpu=True).find_nodes(), 2)

    seen = []
    with pytest.warns(DeprecationWarning, match="min_np"):
        settings = ElasticRayExecutor.create_settings(min_np=2, max_num_proc=2)
    settings.discovery = Chosen()
    with pytest.warns(DeprecationWarning, match="ElasticRayExecutor"):
        e = ElasticRayExecutor(
            settings, use_gpu=True, gpus_per_slot=1, env_vars={"A": "x"}, override_discovery=False
        )
    e.start()
    assert e.run(work, callbacks=[seen.append]) == [(0, "x", "0,1"), (1, "x", "0,1")]
    assert seen == [{"rank": 0}]


def test_discovery(cluster):
    found = RayHostDiscovery(cpus_per_worker=1)
    assert sum(found.find_available_hosts_and_slots().values()) == 4
    assert {slots for _, slots in found.find_nodes().values()} == {2}
    assert sum(RayHostDiscovery(cpus_per_slot=2).find_available_hosts_and_slots().values()) == 2
    on_gpus = RayHostDiscovery(use_gpu=True)
    assert sum(on_gpus.find_available_hosts_and_slots().values()) == 2
    assert RayHostDiscovery(use_gpu=True, gpus_per_slot=3).find_available_hosts_and_slots() == {}
    assert len(TestDiscovery(1, 1, 1000, verbose=False).find_nodes()) == 1


def test_what_elastic_jobs_do_not_have(cluster):
    e = RayExecutor(RayExecutor.create_settings(), min_workers=1)
    with pytest.raises(RuntimeError, match="not been started"):
        e.run(lambda: None)
    e.start()
    with pytest.raises(NotImplementedError, match="run_remote"):
        e.run_remote(lambda: None)
    with pytest.raises(NotImplementedError, match="execute_single"):
        e.execute_single(lambda _: None)


def test_too_few_slots(cluster, monkeypatch, caplog):
    @ray.remote
    def hold():
        time.sleep(300)

    monkeypatch.setattr(elastic_v2, "PATIENCE_S", 0)
    held = hold.remote()
    e = RayExecutor(RayExecutor.create_settings(), min_workers=4, elastic_timeout=3)
    e.start()
    while ray.available_resources().get("CPU") == 4:
        time.sleep(0.05)
    with pytest.raises(RuntimeError, match="slots"):
        e.run(lambda: None)
    assert "It needs {'num_cpus': 2, 'num_gpus': 0}, which something else" in caplog.text
    ray.cancel(held, force=True)
