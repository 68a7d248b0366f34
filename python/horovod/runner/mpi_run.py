# SPDX-License-Identifier: Apache-2.0
"""The mpirun command line of a job, for each MPI that horovodrun --mpi knows."""

import os
import shlex
import sys

from horovod.runner.common.util import env as env_util
from horovod.runner.common.util import hosts as hosts_util
from horovod.runner.common.util import safe_shell_exec, tiny_shell_exec

_OMPI_IMPL = "OpenMPI"
_SMPI_IMPL = "SpectrumMPI"
_MPICH_IMPL = "MPICH"
_IMPI_IMPL = "IntelMPI"
_UNKNOWN_IMPL = "Unknown"
_MISSING_IMPL = "Missing"

_OMPI_FLAGS = ["-mca pml ob1", "-mca btl ^openib"]
_SMPI_FLAGS = []
_SMPI_FLAGS_TCP = ["-tcp"]
_MPICH_FLAGS = []
_IMPI_FLAGS = []
_NO_BINDING_ARGS = ["-bind-to none", "-map-by slot"]
_SOCKET_BINDING_ARGS = ["-bind-to socket", "-map-by socket", "-rank-by core"]
_LARGE_CLUSTER_THRESHOLD = 64

_MPI_NOT_FOUND_ERROR_MSG = (
    "horovod does not find an installed MPI. Install one (Open MPI, Spectrum MPI, MPICH or Intel "
    "MPI are known), start the script with your cluster's own launcher, or leave out --mpi: "
    "horovodrun needs no MPI."
)


def _get_mpi_implementation(env=None):
    """Which MPI the `mpirun` in the PATH belongs to."""
    result = tiny_shell_exec.execute("mpirun --version", env)
    if result is None:
        return _MISSING_IMPL
    output, exit_code = result
    if exit_code != 0:
        return _MISSING_IMPL
    for words, implementation in (
        (("Open MPI", "OpenRTE"), _OMPI_IMPL),
        (("IBM Spectrum MPI",), _SMPI_IMPL),
        (("MPICH", "HYDRA"), _MPICH_IMPL),
        (("Intel(R) MPI",), _IMPI_IMPL),
    ):
        if any(word in output for word in words):
            return implementation
    print(f"mpirun --version names no MPI that is known:\n{output}", file=sys.stderr)
    return _UNKNOWN_IMPL


def mpi_available(env=None):
    return _get_mpi_implementation(env) not in {_UNKNOWN_IMPL, _MISSING_IMPL}


def is_open_mpi(env=None):
    return _get_mpi_implementation(env) == _OMPI_IMPL


def is_spectrum_mpi(env=None):
    return _get_mpi_implementation(env) == _SMPI_IMPL


def is_mpich(env=None):
    return _get_mpi_implementation(env) == _MPICH_IMPL


def is_intel_mpi(env=None):
    return _get_mpi_implementation(env) == _IMPI_IMPL


def _get_mpi_implementation_flags(tcp_flag, env=None):
    """Its own flags, its default binding, and its name; (None, None, None) if there is none."""
    implementation = _get_mpi_implementation(env)
    if implementation == _OMPI_IMPL:
        return list(_OMPI_FLAGS), list(_NO_BINDING_ARGS), _OMPI_IMPL
    if implementation == _SMPI_IMPL:
        flags = _SMPI_FLAGS_TCP if tcp_flag else _SMPI_FLAGS
        return list(flags), list(_SOCKET_BINDING_ARGS), _SMPI_IMPL
    if implementation == _MPICH_IMPL:
        return list(_MPICH_FLAGS), list(_NO_BINDING_ARGS), _MPICH_IMPL
    if implementation == _IMPI_IMPL:
        return list(_IMPI_FLAGS), [], _IMPI_IMPL
    return None, None, None


def _is_hydra(implementation):
    return implementation in (_MPICH_IMPL, _IMPI_IMPL)


def _hosts_piece(settings, implementation):
    if not _is_hydra(implementation):
        return "", f" -H {settings.hosts}"
    names, slots = hosts_util.parse_hosts_and_slots(settings.hosts)
    if len(set(slots.values())) > 1:
        raise Exception(
            f"{implementation} needs the same number of slots on every host, not {settings.hosts}"
        )
    return f" -ppn {slots[names[0]]}", f" -hosts {','.join(names)}"


def _ssh_piece(settings, implementation, host_count):
    options = []
    if settings.ssh_port:
        options.append(f"-p {settings.ssh_port}")
    if settings.ssh_identity_file:
        options.append(f"-i {settings.ssh_identity_file}")
    joined = " ".join(options)
    pieces = []
    if joined and _is_hydra(implementation):
        pieces.append(f'-bootstrap=ssh -bootstrap-exec-args "{joined}"')
    elif joined:
        pieces.append(f'-mca plm_rsh_args "{joined}"')
    if host_count >= _LARGE_CLUSTER_THRESHOLD and not _is_hydra(implementation):
        pieces.append("-mca plm_rsh_no_tree_spawn true")
        pieces.append(f"-mca plm_rsh_num_concurrent {host_count}")
    return " ".join(pieces)


def _nic_pieces(nics, implementation):
    if not nics:
        return "", ""
    names = ",".join(sorted(nics))
    if _is_hydra(implementation):
        return f"-iface {sorted(nics)[0]}", f"-genv NCCL_SOCKET_IFNAME={names}"
    return f"-mca btl_tcp_if_include {names}", f"-x NCCL_SOCKET_IFNAME={names}"


def build_command(settings, nics, env, command, implementation, flags, binding):
    """The line itself. Its order and blanks are fixed; an empty piece leaves its blank."""
    host_names, _ = hosts_util.parse_hosts_and_slots(settings.hosts)
    per_host, hosts = _hosts_piece(settings, implementation)
    nic, nccl = _nic_pieces(nics, implementation)
    basic = "-l" if _is_hydra(implementation) else "--allow-run-as-root --tag-output"
    if settings.prefix_output_with_timestamp and not _is_hydra(implementation):
        basic += " --timestamp-output"
    output = ""
    if settings.output_filename:
        option = "-outfile-pattern" if _is_hydra(implementation) else "--output-filename"
        output = f"{option} {settings.output_filename}"
    variables = ""
    if not _is_hydra(implementation):
        names = sorted(name for name in env if env_util.is_exportable(name))
        variables = " ".join(f"-x {name}" for name in names)
    if settings.binding_args and not _is_hydra(implementation):
        binding = [settings.binding_args]
    extra = settings.extra_mpi_args or ""
    quoted = " ".join(shlex.quote(word) for word in command)
    return (
        f"mpirun {basic} -np {settings.num_proc}{per_host}{hosts} {' '.join(binding)} "
        f"{' '.join(flags)} {_ssh_piece(settings, implementation, len(host_names))} {nic} {nccl} "
        f"{output} {variables} {extra} {quoted}"
    )


def run_line(program, line, settings, env, stdout=None, stderr=None):
    """Run a line of shell that starts `program`. Returns only in run_func_mode."""
    if settings.verbose >= 2:
        print(line)
    if settings.run_func_mode:
        exit_code = safe_shell_exec.execute(line, env=env, stdout=stdout, stderr=stderr)
        if exit_code != 0:
            raise RuntimeError(f"{program} failed with exit code {exit_code}")
    else:
        os.execve("/bin/sh", ["/bin/sh", "-c", line], env)


def mpi_run(settings, nics, env, command, stdout=None, stderr=None):
    """Run a command, a list of words, on all ranks by mpirun. Returns only in run_func_mode."""
    if env is not None and not isinstance(env, dict):
        raise Exception(f"env argument must be a dict, not {type(env)}: {env}")
    flags, binding, implementation = _get_mpi_implementation_flags(settings.tcp_flag, env=env)
    if flags is None:
        raise Exception(_MPI_NOT_FOUND_ERROR_MSG)
    env = dict(os.environ if env is None else env)
    for name in ("PATH", "PYTHONPATH"):
        if name not in env and name in os.environ:
            env[name] = os.environ[name]
    line = build_command(settings, nics, env, command, implementation, flags, binding)
    run_line("mpirun", line, settings, env, stdout, stderr)
