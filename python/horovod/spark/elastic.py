# SPDX-License-Identifier: Apache-2.0
"""Elastic jobs in Spark tasks: every attempt of a task is a host of the launcher with one slot."""

from horovod.runner import api
from horovod.runner.elastic.discovery import HostDiscovery
from horovod.runner.gloo_run import _DiscoveryFile
from horovod.runner.relay import RANK_PYTHON


class SparkTaskDiscovery(HostDiscovery):
    """The tasks of a job that are there now."""

    def __init__(self, job):
        self._job = job

    def find_available_hosts_and_slots(self):
        return dict.fromkeys(self._job.alive(), 1)


def launch_elastic(job, line, call, least, env, stdout, stderr):
    """Run the launcher with the tasks of this job as its hosts; returns the results by rank."""
    found = _DiscoveryFile(SparkTaskDiscovery(job))
    try:
        line = [*line, "--host-discovery-script", found.command]
        return api._run(line, call, least, RANK_PYTHON, dict(env or {}), stdout, stderr)
    except api.RankError as error:
        if error.rank is None and job.error is not None:
            raise RuntimeError("Spark job has failed, see the error above.") from job.error
        raise
    finally:
        found.close()
