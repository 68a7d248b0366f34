# SPDX-License-Identifier: Apache-2.0
"""RayExecutor with a fixed number of ranks, on a real Ray cluster of two nodes."""

import os
import sys
import threading
import time

import cloudpickle
import horovod.ray
import pytest
import ray
from horovod.ray import RayExecutor, ray_logger
from horovod.ray.runner import BaseParams, Coordinator, MiniSettings, StaticParams
from horovod.runner.common.util.settings import Settings

cloudpickle.register_pickle_by_value(sys.modules[__name__])

SETTINGS = RayExecutor.create_settings(timeout_s=30, placement_group_timeout_s=60)


@pytest.fixture
def executor(cluster):
    made = []

    def make(**arguments):
        executor = RayExecutor(arguments.pop("settings", SETTINGS), **arguments)
        made.append(executor)
        return executor

    yield make
    for one in made:
        one.shutdown()
    deadline = time.monotonic() + 60
    while ray.available_resources().get("CPU") != 4:
        assert time.monotonic() < deadline, "actors or placement groups were left behind"
        time.sleep(0.05)


def total(scale=1):
    import horovod.numpy as hvd
    import numpy as np

    hvd.init()
    found = hvd.allreduce(np.full(2, hvd.rank() + 1.0), op=hvd.Sum)
    place = hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size(), hvd.cross_size()
    hvd.shutdown()
    return *place, float(found[0]) * scale


def test_run_packs_workers(executor):
    e = executor(num_workers=2)
    e.start(extra_env_vars={"OF_THE_JOB": "1"})
    assert e.run(total, kwargs={"scale": 10}) == [(0, 2, 0, 2, 1, 30.0), (1, 2, 1, 2, 1, 30.0)]
    assert e.run(total, args=[2])[1][-1] == 6.0  # the same workers again
    assert e.run(lambda: os.environ["OF_THE_JOB"]) == ["1", "1"]
    assert ray.get(e.run_remote(total)) == e.run(total)


def test_workers_on_each_of_two_hosts(executor):
    e = executor(num_hosts=2, num_workers_per_host=2)
    e.start()
    assert [place[:5] for place in e.run(total)] == [
        (0, 4, 0, 2, 2),
        (1, 4, 1, 2, 2),
        (2, 4, 0, 2, 2),
        (3, 4, 1, 2, 2),
    ]


def test_executable(executor):
    class Model:
        def __init__(self, start, step=1):
            self.value, self.step = start, step

        def advance(self):
            self.value += self.step
            return self.value

    e = executor(num_workers=2)
    e.start(executable_cls=Model, executable_args=[5], executable_kwargs={"step": 2})
    assert e.execute(lambda model: model.advance()) == [7, 7]
    assert e.execute_single(lambda model: model.advance()) == 9
    assert e.execute(lambda model: model.value) == [9, 7]


def test_callbacks_get_what_rank_0_logs(executor):
    def train():
        for step in range(3):
            ray_logger.log({"step": step, "rank": int(os.environ["HOROVOD_RANK"])})

    seen = []
    e = executor(num_workers=2)
    e.start()
    e.run(train, callbacks=[lambda value: 1 / 0, seen.append])  # the first one only logs its error
    assert seen == [{"step": step, "rank": 0} for step in range(3)]
    e.run(train)
    assert len(seen) == 3
    with pytest.raises(TypeError, match="takes a dict"):
        ray_logger.log("text")


def test_a_rank_that_raises_alone_while_others_wait(executor):
    def fail():
        import horovod.numpy as hvd
        import numpy as np

        hvd.init()
        if hvd.rank() == 1:
            raise ValueError("rank one fails")
        hvd.allreduce(np.ones(1), name="never complete")

    e = executor(num_workers=2)
    e.start()
    with pytest.raises(ValueError, match="rank one fails"):
        e.run(fail)


def test_all_ranks_raise_and_the_executor_can_be_used_again(executor):
    e = executor(num_workers=2)
    e.start()
    with pytest.raises(ZeroDivisionError):
        e.run(lambda: 1 / 0)
    assert len(e.run(total)) == 2


def test_a_rank_that_exits(executor):
    def leave():
        import horovod.numpy as hvd
        import numpy as np

        hvd.init()
        if hvd.rank() == 1:
            os._exit(7)
        hvd.allreduce(np.ones(1), name="never complete")

    e = executor(num_workers=2)
    e.start()
    with pytest.raises(ray.exceptions.RayError):
        e.run(leave, callbacks=[print])
    assert "horovod-callbacks" not in {thread.name for thread in threading.enumerate()}


def test_workers_of_a_node_see_all_its_gpus(executor):
    e = executor(num_workers=2, use_gpu=True)
    e.start()
    assert e.run(lambda: os.environ["CUDA_VISIBLE_DEVICES"]) == ["0,1", "0,1"]


def test_too_few_resources(executor):
    e = executor(settings=RayExecutor.create_settings(placement_group_timeout_s=1), num_workers=5)
    with pytest.raises(TimeoutError, match="Placement group creation timed out"):
        e.start()
    e = executor(
        settings=RayExecutor.create_settings(placement_group_timeout_s=1),
        num_hosts=3,
        num_workers_per_host=1,
    )
    with pytest.raises(TimeoutError, match="STRICT_SPREAD"):
        e.start()


def test_current_placement_group(executor):
    @ray.remote(num_cpus=0)
    def inside():
        from horovod.ray import RayExecutor

        short = RayExecutor.create_settings(timeout_s=1, placement_group_timeout_s=1)
        with pytest.raises(TimeoutError, match="3 actors of .* are needed in a placement group"):
            RayExecutor(short, num_workers=3).start()
        e = RayExecutor(RayExecutor.create_settings(), num_workers=2)
        e.start()
        nodes = e.run(lambda: ray.get_runtime_context().get_placement_group_id())
        e.shutdown()
        return nodes, ray.get_runtime_context().get_placement_group_id()

    from ray.util.placement_group import placement_group, remove_placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    executor  # noqa: B018
    group = placement_group([{"CPU": 1}] * 2)
    assert group.wait(60)
    strategy = PlacementGroupSchedulingStrategy(group, placement_group_capture_child_tasks=True)
    found, outer = ray.get(inside.options(scheduling_strategy=strategy).remote())
    assert found == [outer, outer]
    remove_placement_group(group)


def test_settings_of_another_kind(executor):
    e = executor(settings=Settings(num_proc=1), num_workers=1)
    e.start()
    assert e.run(total) == [(0, 1, 0, 1, 1, 1.0)]


@pytest.mark.parametrize(
    "arguments,text",
    [
        ({}, "Either one of"),
        ({"num_workers": 1, "num_hosts": 1}, "Either one of"),
        ({"num_workers": 0}, "num_workers must be"),
        ({"num_workers": 1, "gpus_per_worker": 1}, "use_gpu"),
        ({"num_workers": 1, "use_gpu": True, "gpus_per_worker": 0}, "gpus_per_worker must be"),
        ({"num_workers": 1, "min_workers": 1}, "min_workers"),
        ({"max_workers": 1}, "min_workers is not"),
        ({"min_workers": 2, "max_workers": 1}, "max_workers is 1"),
    ],
)
def test_bad_arguments(cluster, arguments, text):
    with pytest.raises(ValueError, match=text):
        RayExecutor(SETTINGS, **arguments)


def test_calls_in_the_wrong_order(executor):
    e = executor(num_workers=1)
    with pytest.raises(RuntimeError, match="not been started"):
        e.run(total)
    e.start()
    with pytest.raises(RuntimeError, match="started already"):
        e.start()


def test_coordinator_places():
    coordinator = Coordinator(MiniSettings())
    for rank, node in enumerate(["a", "a", "b"]):
        coordinator.register(f"host-{node}", node, rank)
    assert (coordinator.world_size, coordinator.node_id_string) == (3, "a:2,b:1")
    assert coordinator.hostnames == {"host-a", "host-b"}
    places = coordinator.finalize_registration()
    assert [places[r]["HOROVOD_LOCAL_RANK"] for r in range(3)] == ["0", "1", "0"]
    assert [places[r]["HOROVOD_CROSS_SIZE"] for r in range(3)] == ["2", "1", "2"]
    assert places[2]["HOROVOD_CROSS_RANK"] == "1"


def test_names():
    assert horovod.ray.__all__ == ["BaseHorovodWorker", "ElasticRayExecutor", "RayExecutor"]
    assert issubclass(StaticParams, BaseParams)
