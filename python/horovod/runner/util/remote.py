# SPDX-License-Identifier: Apache-2.0
"""The command line that runs something on another host."""

import shlex

from horovod.runner.common.util import env as env_util

# A host key that is new is kept, one that has changed is refused.
SSH_COMMAND_PREFIX = "ssh -o PasswordAuthentication=no -o StrictHostKeyChecking=accept-new"


def get_ssh_command(local_command, host, port=None, identity_file=None, timeout_s=None, stdin=None):
    parts = [SSH_COMMAND_PREFIX, shlex.quote(host)]
    if port:
        parts.append(f"-p {port}")
    if identity_file:
        parts.append(f"-i {shlex.quote(identity_file)}")
    if timeout_s:
        parts.append(f"-o ConnectTimeout={timeout_s}")
    return " ".join([*parts, local_command])


def get_remote_command(
    local_command, host, port=None, identity_file=None, timeout_s=None, stdin=None
):
    """Through ssh, or through the script of the Kubeflow MPI operator if that is there."""
    if env_util.is_kubeflow_mpi():
        return f"{env_util.KUBEFLOW_MPI_EXEC} {host} {local_command}"
    return get_ssh_command(local_command, host, port, identity_file, timeout_s, stdin)
