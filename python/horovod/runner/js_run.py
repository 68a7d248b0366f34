# SPDX-License-Identifier: Apache-2.0
"""jsrun, the launcher of LSF clusters with IBM's job step manager."""

import os
import shlex
import shutil
import tempfile

from horovod.runner.common.util import hosts as hosts_util
from horovod.runner.mpi_run import _get_mpi_implementation_flags, run_line
from horovod.runner.util import lsf

_NOT_FOUND = "there is no jsrun in the PATH; choose another way to start the ranks"


def is_jsrun_installed():
    return shutil.which("jsrun") is not None


def generate_jsrun_rankfile(settings, path=None):
    """A file that gives every rank its share of cores, in the form of jsrun --erf_input."""
    cores = lsf.LSFUtils.get_num_cores() * lsf.LSFUtils.get_num_threads()
    gpus = lsf.LSFUtils.get_num_gpus()
    per_rank = cores // gpus
    lines = ["overlapping_rs: allow", "cpu_index_using: logical"]
    rank = 0
    for host in hosts_util.parse_hosts(settings.hosts):
        if host.slots > gpus:
            raise ValueError(f"{host.hostname} is given {host.slots} slots but has {gpus} GPUs")
        slots = min(host.slots, settings.num_proc - rank)
        if slots > 0:
            lines.append("")
        for index in range(slots):
            first = index * per_rank
            lines.append(
                f"rank: {rank}: {{ hostname: {host.hostname}; "
                f"cpu: {{{first}-{first + per_rank - 1}}} ; gpu: * ; mem: * }}"
            )
            rank += 1
    if rank < settings.num_proc:
        raise ValueError(f"{settings.num_proc} ranks were asked for, the hosts have {rank} slots")
    if path is None:
        fd, path = tempfile.mkstemp(prefix="horovod-rankfile-")
        os.close(fd)
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
    return path


def js_run(settings, nics, env, command, stdout=None, stderr=None):
    """Run a command, a list of words, on all ranks by jsrun. Returns only in run_func_mode."""
    flags = _get_mpi_implementation_flags(settings.tcp_flag, env=env)[0]
    if flags is None or not is_jsrun_installed():
        raise Exception(_NOT_FOUND)
    env = dict(os.environ if env is None else env)
    pieces = ["jsrun"]
    pieces.append(settings.binding_args or f"--erf_input {generate_jsrun_rankfile(settings)}")
    if settings.output_filename:
        pieces.append(f"--stdio_stderr {settings.output_filename}")
        pieces.append(f"--stdio_stdout {settings.output_filename}")
    smpi = " ".join([*flags, settings.extra_mpi_args or ""]).strip()
    if smpi:
        pieces.append(f"--smpiargs {shlex.quote(smpi)}")
    line = " ".join([*pieces, *(shlex.quote(word) for word in command)])
    run_line("jsrun", line, settings, env, stdout, stderr)
