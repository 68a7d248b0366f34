# SPDX-License-Identifier: Apache-2.0
"""horovod.spark.run() and run_elastic(): ranks in Spark tasks.

Spark starts tasks; in each of them horovodrun, which the driver runs, starts one rank
(horovod.runner.relay). The results come back as those of horovod.run() do.
"""

import os
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from horovod.common.util import missing_framework
from horovod.runner import api
from horovod.runner.common.util.hosts import HostInfo, get_host_assignments
from horovod.runner.gloo_run import create_slot_env_vars
from horovod.runner.launcher import find_horovodrun
from horovod.runner.relay import RANK_PYTHON
from horovod.spark.job import SparkJob
from horovod.spark.task import call_in_task

START_TIMEOUT_S = 600


def _active_context():
    try:
        from pyspark import SparkContext
    except ModuleNotFoundError as error:
        raise missing_framework("horovod.spark", "Spark", "pyspark", error) from error

    context = SparkContext._active_spark_context
    if context is None:
        raise Exception(
            "Could not find an active SparkContext, are you running in a PySpark session?"
        )
    return context


def _positive(name, value):
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name} is {value!r}, but must be a positive number of processes.")
    return value


def _start_timeout(given):
    if given is None:
        given = os.environ.get("HOROVOD_SPARK_START_TIMEOUT") or START_TIMEOUT_S
    try:
        return int(given)
    except ValueError:
        raise ValueError(f"start_timeout is {given!r}, which is not a number of seconds") from None


def _check_call(fn, env):
    if not callable(fn):
        raise ValueError(f"fn must be a function, not {type(fn).__name__}.")
    if env is not None and not isinstance(env, dict):
        raise ValueError(f"env must be a dict of variables, not {type(env).__name__}.")


def _check_controller(use_mpi, use_gloo):
    if use_mpi and use_gloo:
        raise ValueError("Argument use_gloo and use_mpi only allow one set True.")
    if use_mpi:
        raise ValueError(
            "use_mpi=True: mpirun can't start ranks in Spark tasks here; leave use_mpi out, the "
            "ranks then talk to each other without MPI."
        )


def _rank_order(tasks):
    """Names of the tasks by rank: the machine of task 0 first, tasks of a machine together."""
    by_host = {}
    for name, about in sorted(tasks.items(), key=lambda item: item[1]["index"]):
        by_host.setdefault(about["host"], []).append(name)
    hosts = sorted(by_host)
    first = next(about["host"] for about in tasks.values() if about["index"] == 0)
    start = hosts.index(first)
    hosts = hosts[start:] + hosts[:start]
    return hosts, by_host


def _places(hosts, by_host):
    """By rank, the variables that say where it is; the launcher takes every task for a machine."""
    infos = [HostInfo(host, len(by_host[host])) for host in hosts]
    slots = get_host_assignments(infos, 1)
    return {slot.rank: create_slot_env_vars(slot) for slot in slots}


def _call(fn, args, kwargs, places):
    import cloudpickle

    pickled = cloudpickle.dumps((fn, tuple(args), dict(kwargs or {})))
    return call_in_task, (pickled, places), {}


def _options(job, nics, verbose, prefix_output_with_timestamp, timeout_s):
    line = [find_horovodrun(), "--gloo", "--rsh-agent", job.relay.program]
    line += ["--start-timeout", str(max(1, timeout_s))]
    if nics:
        line += ["--network-interfaces", ",".join(sorted(nics))]
    if prefix_output_with_timestamp:
        line.append("--prefix-output-with-timestamp")
    if verbose and verbose >= 2:
        line.append("--verbose")
    return line


def _nics(nics):
    return {nics} if isinstance(nics, str) else set(nics) if nics else None


def run(
    fn: Callable,
    args: Sequence = (),
    kwargs: dict[str, Any] | None = None,
    num_proc: int | None = None,
    start_timeout: int | None = None,
    use_mpi: bool | None = None,
    use_gloo: bool | None = None,
    extra_mpi_args: str | None = None,
    env: dict[str, str] | None = None,
    stdout: Any = None,
    stderr: Any = None,
    verbose: int = 1,
    nics: Any = None,
    prefix_output_with_timestamp: bool = False,
    executable: str | None = None,
) -> list:
    """Run fn(*args, **kwargs) on num_proc ranks, one per Spark task; returns the results by rank.

    num_proc: sc.defaultParallelism if None. start_timeout: seconds to wait for the tasks
    (HOROVOD_SPARK_START_TIMEOUT, else 600). env: variables of the ranks, added to those of the
    Spark worker. stdout, stderr: text streams for the ranks' output (sys.stdout, sys.stderr), whose
    lines begin with the rank. verbose: 2 reports what the launcher does. nics: interfaces to use.
    executable: the Python of the ranks; by default that of the Spark worker. extra_mpi_args has
    no effect.

    If a rank fails, the others are stopped, and RankError, a RuntimeError, has its traceback and
    the exception as its cause. No task and no process is left, whatever happens.
    """
    _check_call(fn, env)
    _check_controller(use_mpi, use_gloo)
    if extra_mpi_args:
        warnings.warn("extra_mpi_args has no effect: there is no mpirun", stacklevel=2)
    context = _active_context()
    count = _positive("num_proc", context.defaultParallelism if num_proc is None else num_proc)
    timeout_s = _start_timeout(start_timeout)
    nics = _nics(nics)
    with SparkJob(context, count, nics) as job:
        tasks = job.wait_for_tasks(count, timeout_s)
        if verbose and verbose >= 2:
            print(f"All {count} Spark tasks have started.")
        hosts, by_host = _rank_order(tasks)
        names = [name for host in hosts for name in by_host[host]]
        line = _options(job, nics, verbose, prefix_output_with_timestamp, timeout_s)
        line += ["-np", str(count), "-H", ",".join(f"{name}:1" for name in names)]
        call = _call(fn, args, kwargs, _places(hosts, by_host))
        return _launch(job, line, call, count, executable, env, stdout, stderr)


def _launch(job, line, call, count, executable, env, stdout, stderr):
    python = RANK_PYTHON if executable is None else [executable]
    try:
        return api._run(line, call, count, python, dict(env or {}), stdout, stderr)
    except api.RankError as error:
        if error.rank is None and job.error is not None:
            raise RuntimeError("Spark job has failed, see the error above.") from job.error
        raise


def run_elastic(
    fn: Callable,
    args: Sequence = (),
    kwargs: dict[str, Any] | None = None,
    num_proc: int | None = None,
    min_num_proc: int | None = None,
    max_num_proc: int | None = None,
    start_timeout: int | None = None,
    elastic_timeout: int | None = None,
    reset_limit: int | None = None,
    env: dict[str, str] | None = None,
    stdout: Any = None,
    stderr: Any = None,
    verbose: int = 1,
    nics: Any = None,
    prefix_output_with_timestamp: bool = False,
    min_np: int | None = None,
    max_np: int | None = None,
) -> list:
    """Run fn as an elastic job (docs/elastic.md) in Spark tasks; returns the results by rank.

    Tasks that Spark loses and starts again become new ranks. num_proc: how many ranks there must
    be before the job begins; min_num_proc and max_num_proc: between which numbers it goes on
    (num_proc if None). elastic_timeout: seconds to wait for enough ranks (600). reset_limit: how
    many changes of membership end the job. The results are those of the first min_num_proc ranks.
    See run() for the other arguments, and horovod.spark.conf for settings of Spark that help.
    """
    from horovod.spark.elastic import launch_elastic

    min_num_proc = api._renamed("min_np", min_np, "min_num_proc", min_num_proc)
    max_num_proc = api._renamed("max_np", max_np, "max_num_proc", max_num_proc)
    _check_call(fn, env)
    context = _active_context()
    num_proc = _positive("num_proc", context.defaultParallelism if num_proc is None else num_proc)
    least = _positive("min_num_proc", num_proc if min_num_proc is None else min_num_proc)
    most = _positive("max_num_proc", num_proc if max_num_proc is None else max_num_proc)
    if not least <= num_proc <= most:
        raise ValueError(
            f"num_proc is {num_proc}, but must be between min_num_proc {least} and max_num_proc "
            f"{most}."
        )
    timeout_s = _start_timeout(start_timeout)
    nics = _nics(nics)
    with SparkJob(context, most, nics) as job:
        job.wait_for_tasks(num_proc, timeout_s)
        line = _options(job, nics, verbose, prefix_output_with_timestamp, timeout_s)
        line += ["-np", str(num_proc), "--min-np", str(least), "--max-np", str(most)]
        for name, value in (
            ("--elastic-timeout", elastic_timeout),
            ("--reset-limit", reset_limit),
        ):
            if value is not None:
                line += [name, str(value)]
        call = _call(fn, args, kwargs, None)
        return launch_elastic(job, line, call, least, env, stdout, stderr)
