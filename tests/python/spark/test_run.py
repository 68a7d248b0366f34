# SPDX-License-Identifier: Apache-2.0
"""horovod.spark.run() in real Spark tasks: results, output, failures, and nothing left behind."""

import io
import os
import re
import signal
import sys
import threading
import time
from pathlib import Path

import cloudpickle
import horovod.spark
import pytest
from horovod.runner import RankError
from horovod.runner.common.util.timeout import TimeoutException

cloudpickle.register_pickle_by_value(sys.modules[__name__])


def init(pids):
    """Initialise Horovod and leave our process number where the test finds it."""
    import horovod.numpy as hvd

    hvd.init()
    (Path(pids) / str(os.getpid())).write_text(f"{hvd.rank()} {os.getppid()}")
    return hvd


def test_results_by_rank(spark, pids):
    def call(a, b=0):
        import numpy as np

        hvd = init(pids)
        total = hvd.allreduce(np.full(3, hvd.rank() + 1.0), op=hvd.Sum)
        return hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size(), total.tolist(), a + b

    results = horovod.spark.run(call, (3,), {"b": 4}, num_proc=4)
    assert results == [(rank, 4, rank, 4, [10.0] * 3, 7) for rank in range(4)]


def test_default_number_of_ranks_and_place(spark):
    def call():
        from pyspark import TaskContext

        return os.getcwd(), os.environ["HOROVOD_HOSTNAME"], TaskContext.get() is None

    results = horovod.spark.run(call)
    assert len(results) == spark.sparkContext.defaultParallelism
    assert all(spark.sparkContext.applicationId in where for where, _, _ in results)
    assert all(re.fullmatch(r"[\w.-]+-[0-9a-f]{32}", host) for _, host, _ in results)
    assert all(is_outside for _, _, is_outside in results)


def test_environment_is_what_was_given(spark, monkeypatch):
    monkeypatch.setenv("OF_THE_DRIVER", "1")

    def call():
        return os.environ.get("GIVEN"), os.environ.get("OF_THE_DRIVER")

    assert horovod.spark.run(call, num_proc=1, env={"GIVEN": "x y"}) == [("x y", None)]


def test_output_has_the_rank_in_front(spark, capsys):
    def call():
        rank = os.environ["HOROVOD_RANK"]
        print(f"out {rank}")
        print(f"err {rank}", file=sys.stderr)

    out, err = io.StringIO(), io.StringIO()
    horovod.spark.run(call, num_proc=2, stdout=out, stderr=err)
    assert sorted(out.getvalue().splitlines()) == ["[0]<stdout>:out 0", "[1]<stdout>:out 1"]
    assert sorted(err.getvalue().splitlines()) == ["[0]<stderr>:err 0", "[1]<stderr>:err 1"]
    horovod.spark.run(call, num_proc=1, prefix_output_with_timestamp=True)
    assert re.search(r"^\w{3} \w{3} .* \d{4}\[0\]<stdout>:out 0$", capsys.readouterr().out, re.M)


def test_much_output_and_a_large_result(spark):
    def call():
        for i in range(40000):
            print(f"{i:06d} " + "x" * 93)
        return bytes(20 << 20)

    out = io.StringIO()
    result = horovod.spark.run(call, num_proc=2, stdout=out)
    assert [len(blob) for blob in result] == [20 << 20] * 2
    lines = [line.split()[0] for line in out.getvalue().splitlines() if line.startswith("[1]")]
    assert lines == [f"[1]<stdout>:{i:06d}" for i in range(40000)]


def test_a_rank_that_raises_alone(spark, pids):
    def call():
        import numpy as np

        hvd = init(pids)
        if hvd.rank() == 2:
            raise ValueError("rank two has had enough")
        hvd.allreduce(np.ones(1), name="never complete")

    with pytest.raises(RankError, match="rank two has had enough") as caught:
        horovod.spark.run(call, num_proc=4)
    assert caught.value.rank == 2
    assert isinstance(caught.value.__cause__, ValueError)


def test_a_rank_that_exits_while_others_compute(spark, pids):
    def call():
        hvd = init(pids)
        if hvd.rank() == 1:
            os._exit(9)
        time.sleep(600)

    with pytest.raises(RankError) as caught:
        horovod.spark.run(call, num_proc=2)
    assert caught.value.exit_code == 9
    assert "rank 1" in str(caught.value).lower()


def test_too_few_slots(spark, pids):
    with pytest.raises(TimeoutException, match=r"Timed out waiting for Spark tasks.*4 of 5"):
        horovod.spark.run(lambda: init(pids), num_proc=5, start_timeout=3)
    assert horovod.spark.run(lambda: 1, num_proc=4) == [1] * 4  # all slots are free again


def test_a_cancelled_job_leaves_nothing(spark, pids, wait_for):
    def call():
        init(pids)
        time.sleep(600)

    def cancel():
        wait_for(lambda: len(list(pids.iterdir())) == 2)
        spark.sparkContext.cancelAllJobs()

    thread = threading.Thread(target=cancel)
    thread.start()
    with pytest.raises(RuntimeError, match="Spark job has failed"):
        horovod.spark.run(call, num_proc=2)
    thread.join()


def test_an_interrupted_driver_leaves_nothing(spark, pids, wait_for):
    def call():
        init(pids)
        time.sleep(600)

    def interrupt():
        wait_for(lambda: len(list(pids.iterdir())) == 2)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        horovod.spark.run(call, num_proc=2)
    thread.join()
    assert horovod.spark.run(lambda: 1, num_proc=4) == [1] * 4


def parent_of(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@pytest.mark.parametrize("what", ["task", "executor"])
def test_a_killed_task_fails_the_job(spark, pids, wait_for, what):
    """The process of a Spark task, or its JVM, is killed: its rank dies, the others are stopped."""

    def call():
        hvd = init(pids)
        time.sleep(600 if hvd.rank() == 0 else 0.2)

    def kill():
        wait_for(lambda: any(p.read_text().startswith("0 ") for p in pids.iterdir()))
        rank0 = next(p.name for p in pids.iterdir() if p.read_text().startswith("0 "))
        task = parent_of(parent_of(rank0))  # rank -> agent -> task -> daemon -> executor
        os.kill(task if what == "task" else parent_of(parent_of(task)), signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    with pytest.raises(RuntimeError, match="lost"):
        horovod.spark.run(call, num_proc=2)
    thread.join()
    assert horovod.spark.run(lambda: 1, num_proc=4) == [1] * 4  # Spark has replaced it


def test_devices_of_the_task(spark):
    def call():
        from horovod.spark.task import get_available_devices

        return get_available_devices()

    devices = horovod.spark.run(call, num_proc=4)
    assert sorted(devices) == [["0"], ["0"], ["1"], ["1"]]
    from horovod.spark.task import get_available_devices

    assert get_available_devices() == []
    plain = spark.sparkContext.parallelize([0], 1).map(lambda _: call()).collect()
    assert plain in ([["0"]], [["1"]])


@pytest.mark.parametrize(
    "arguments,text",
    [
        ({"num_proc": 0}, "num_proc is 0"),
        ({"num_proc": "2"}, "num_proc is '2'"),
        ({"use_mpi": True}, "use_mpi"),
        ({"use_mpi": True, "use_gloo": True}, "only allow one"),
        ({"env": ["A=1"]}, "env must be a dict"),
        ({"nics": ["nowhere0"]}, "nowhere0"),
        ({"start_timeout": "soon"}, "not a number"),
    ],
)
def test_bad_arguments(spark, arguments, text):
    with pytest.raises(ValueError, match=re.escape(text)):
        horovod.spark.run(lambda: None, **{"num_proc": 1, **arguments})


def test_an_argument_without_effect(spark):
    with (
        pytest.warns(UserWarning, match="extra_mpi_args has no effect"),
        pytest.raises(ValueError, match="num_proc is 0"),
    ):
        horovod.spark.run(lambda: None, num_proc=0, extra_mpi_args="-x A")


def test_a_function_that_is_none_and_one_that_cannot_be_sent(spark):
    with pytest.raises(ValueError, match="must be a function"):
        horovod.spark.run("print")
    lock = threading.Lock()
    with pytest.raises(TypeError, match="pickle"):
        horovod.spark.run(lambda: lock, num_proc=1)


def test_a_python_that_is_not_there(spark):
    with pytest.raises(RuntimeError, match="no_such_python"):
        horovod.spark.run(lambda: None, num_proc=1, executable="/no_such_python")


def test_configuration_names():
    name, value = horovod.spark.conf.SPARK_CONF_ALWAYS_RESTART_FAILED_TASK
    assert (name, value) == ("spark.task.maxFailures", "2147483647")
