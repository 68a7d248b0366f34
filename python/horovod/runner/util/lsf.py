# SPDX-License-Identifier: Apache-2.0
"""What an LSF job knows about its hosts."""

import os


class LSFUtils:
    """From the variables that every LSF sets; nothing is asked of the machines themselves."""

    @staticmethod
    def using_lsf():
        return "LSB_JOBID" in os.environ

    @staticmethod
    def _hosts():
        """Slots by host, the launch node left out if it has but one slot and others have more."""
        words = os.environ.get("LSB_MCPU_HOSTS", "").split()
        hosts = {words[i]: int(words[i + 1]) for i in range(0, len(words) - 1, 2)}
        if not hosts:
            for name in os.environ.get("LSB_HOSTS", "").split():
                hosts[name] = hosts.get(name, 0) + 1
        names = list(hosts)
        if len(names) > 1 and hosts[names[0]] == 1 and max(hosts.values()) > 1:
            del hosts[names[0]]
        return hosts

    @staticmethod
    def get_allocation_info():
        return {"compute_nodes": LSFUtils.get_compute_hosts()}

    @staticmethod
    def get_compute_hosts():
        return sorted(LSFUtils._hosts())

    @staticmethod
    def get_num_cores():
        return max(LSFUtils._hosts().values(), default=1)

    @staticmethod
    def get_num_gpus():
        return int(os.environ.get("HOROVOD_LSF_GPUS", LSFUtils.get_num_cores()))

    @staticmethod
    def get_num_processes():
        return len(LSFUtils.get_compute_hosts()) * LSFUtils.get_num_gpus()

    @staticmethod
    def get_num_threads():
        return int(os.environ.get("HOROVOD_LSF_THREADS", 1))
