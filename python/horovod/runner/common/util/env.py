# SPDX-License-Identifier: Apache-2.0
"""Which variables of the environment are for other hosts."""

import os
import re

LOG_LEVEL_STR = ["FATAL", "ERROR", "WARNING", "INFO", "DEBUG", "TRACE"]

# Names that mean something on this host only, and secrets.
IGNORE_REGEXES = {
    "BASH_FUNC_.*",
    "OLDPWD",
    ".*CUDA_VISIBLE_DEVICES",
    "_HOROVOD_SECRET_KEY",
    "HOROVOD_KEY",
}

KUBEFLOW_MPI_EXEC = "/etc/mpi/kubexec.sh"
_RSH_AGENT = "OMPI_MCA_plm_rsh_agent"


def is_exportable(v):
    return not any(re.match(regex, v) for regex in IGNORE_REGEXES)


def get_env_rank_and_size():
    """Rank and size as whoever started us set them; (0, 1) if nobody did."""
    for rank_name, size_name in (
        ("HOROVOD_RANK", "HOROVOD_SIZE"),
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
        ("PMI_RANK", "PMI_SIZE"),
    ):
        rank, size = os.environ.get(rank_name), os.environ.get(size_name)
        if rank is not None and size is not None:
            return int(rank), int(size)
        if rank is not None or size is not None:
            there, missing = (rank_name, size_name) if size is None else (size_name, rank_name)
            raise RuntimeError(
                f"Could not determine process rank and size: {there} is set but {missing} is not"
            )
    return 0, 1


def is_kubeflow_mpi():
    return os.environ.get(_RSH_AGENT, "") == KUBEFLOW_MPI_EXEC
