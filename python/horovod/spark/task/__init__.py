# SPDX-License-Identifier: Apache-2.0
"""What runs in a Spark task: the place of a rank, and what the rank may ask about its task."""

import json
import os
import sys

RESOURCES = "_HOROVOD_SPARK_RESOURCES"  # {name: [address]} of the task, as JSON
WORK_DIR = "HOROVOD_SPARK_WORK_DIR"
USE_LOCAL_RANK = "HOROVOD_SPARK_USE_LOCAL_RANK_GPU_INDEX"
PYTHON_PATH = "HOROVOD_SPARK_PYTHONPATH"  # prepended to sys.path of the ranks


def get_available_devices() -> list[str]:
    """Addresses of the GPUs that Spark has assigned to this task; [] if there are none.

    Works in a rank of horovod.spark.run() and in a plain Spark task.
    """
    resources = json.loads(os.environ.get(RESOURCES) or "null")
    if resources is None:
        resources = _task_resources()
    return [str(address) for address in resources.get("gpu", [])]


def gpu_index(local_rank: int) -> int:
    """The GPU of this rank: the one that Spark has assigned to its task, else by local rank.

    HOROVOD_SPARK_USE_LOCAL_RANK_GPU_INDEX=1 ignores what Spark has assigned.
    """
    devices = [] if os.environ.get(USE_LOCAL_RANK) == "1" else get_available_devices()
    return int(devices[0]) if devices else local_rank


def _task_resources():
    try:
        from pyspark import TaskContext
    except ModuleNotFoundError:
        return {}
    context = TaskContext.get()
    if context is None:
        return {}
    return {name: list(found.addresses) for name, found in context.resources().items()}


def task_name(index: int, attempt: int) -> str:
    """The name of an attempt of a task, as the launcher knows it."""
    return f"task-{index}-{attempt}"


def serve_task(index, addresses, key):
    """Be a place for a rank until the driver says that the job is over. Runs in the Spark task."""
    import socket

    from pyspark import TaskContext

    from horovod.runner import relay
    from horovod.runner.common.util.host_hash import host_hash

    context = TaskContext.get()
    name = task_name(index, context.attemptNumber())
    about = {
        "index": index,
        "attempt": context.attemptNumber(),
        "host": host_hash(os.environ.get("CONTAINER_ID")),
        "hostname": socket.gethostname(),
        "pid": os.getpid(),
    }
    env = dict(os.environ)
    env[RESOURCES] = json.dumps(_task_resources())
    env[WORK_DIR] = os.getcwd()
    if env.get(PYTHON_PATH):
        env["PYTHONPATH"] = os.pathsep.join([env[PYTHON_PATH], *filter(None, sys.path)])
    else:
        env["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    relay.serve(addresses, key, name, about, env)
    return index


def call_in_task(pickled, places):
    """The call of a rank: in its task's folder, with its place among the machines set.

    places: variables by rank, or None in an elastic job, where the launcher's are right.
    """
    import cloudpickle

    if places is not None:
        os.environ.update(places[int(os.environ["HOROVOD_RANK"])])
    if os.path.isdir(os.environ.get(WORK_DIR, "")):
        os.chdir(os.environ[WORK_DIR])
    func, args, kwargs = cloudpickle.loads(pickled)
    return func(*args, **kwargs)
