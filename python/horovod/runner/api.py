# SPDX-License-Identifier: Apache-2.0
"""horovod.run(): the arguments, the launcher's command line, and what came back."""

import os
import sys
import tempfile
import warnings

from horovod.runner.common.util.hosts import get_host_assignments, parse_hosts
from horovod.runner.launcher import find_horovodrun, run_launcher
from horovod.runner.mailbox import CALL, Folder

FAILED = (
    "Horovod detected that one or more processes exited with non-zero status, thus causing the "
    "job to be terminated. The first process to do so was:\n"
    "Process name: {rank}\nExit code: {code}\n"
)


class RankError(RuntimeError):
    """The function raised on a rank. `__cause__` is the exception itself where it could be sent.

    Attributes: rank, host, exit_code, traceback (text, as the rank would have printed it).
    """

    def __init__(self, message, rank=None, host=None, exit_code=None, traceback=None):
        super().__init__(message)
        self.rank = rank
        self.host = host
        self.exit_code = exit_code
        self.traceback = traceback


def _renamed(old_name, old, new_name, new):
    if old is None:
        return new
    warnings.warn(
        f"{old_name} is deprecated, use {new_name} instead", DeprecationWarning, stacklevel=3
    )
    return old


def run(
    func,
    args=(),
    kwargs=None,
    num_proc=1,
    min_num_proc=None,
    max_num_proc=None,
    slots=None,
    reset_limit=None,
    cooldown_range=None,
    hosts=None,
    hostfile=None,
    host_discovery_script=None,
    start_timeout=None,
    ssh_port=None,
    ssh_identity_file=None,
    disable_cache=None,
    output_filename=None,
    verbose=None,
    use_gloo=None,
    use_mpi=None,
    mpi_args=None,
    network_interface=None,
    network_interfaces=None,
    executable=None,
    np=None,
    min_np=None,
    max_np=None,
    *,
    env=None,
):
    """Run func(*args, **kwargs) on num_proc ranks and return their results as a list, by rank.

    The ranks are started by the launcher `horovodrun`, and most arguments are its options.
    `executable` is the Python of the ranks (this one), `env` their environment (ours). The function
    is pickled by value where it must be (notebooks, `__main__`), so no `if __name__ == '__main__'`
    is needed, and any thread may call. If a rank fails, the others are ended and RankError, a
    RuntimeError, says which it was, with its traceback.
    """
    num_proc = _renamed("np", np, "num_proc", num_proc)
    min_num_proc = _renamed("min_np", min_np, "min_num_proc", min_num_proc)
    max_num_proc = _renamed("max_np", max_np, "max_num_proc", max_num_proc)
    if network_interface is not None:
        if network_interfaces is not None:
            raise ValueError("Argument network_interface and network_interfaces only allow one.")
        network_interfaces = _renamed(
            "network_interface", network_interface, "network_interfaces", None
        ).split(",")
    if hosts is not None and hostfile is not None:
        raise ValueError("Argument hosts and hostfile only allow one provided.")
    if use_gloo and use_mpi:
        raise ValueError("Argument use_gloo and use_mpi only allow one set True.")
    is_elastic = min_num_proc is not None or host_discovery_script is not None
    if num_proc is not None and num_proc < 1:
        raise ValueError(f"Argument num_proc is {num_proc}, but at least one process is needed.")
    if hosts is not None and not is_elastic:
        get_host_assignments(parse_hosts(hosts), num_proc)
    if isinstance(network_interfaces, str):
        network_interfaces = [network_interfaces]
    options = {
        "-np": num_proc,
        "--min-np": min_num_proc,
        "--max-np": max_num_proc,
        "--slots-per-host": slots,
        "--reset-limit": reset_limit,
        "-H": hosts,
        "--hostfile": hostfile,
        "--host-discovery-script": host_discovery_script,
        "--start-timeout": start_timeout,
        "--ssh-port": ssh_port,
        "--ssh-identity-file": ssh_identity_file,
        "--output-filename": output_filename,
        "--network-interfaces": ",".join(network_interfaces) if network_interfaces else None,
    }
    flags = {
        "--disable-cache": disable_cache,
        "--verbose": verbose,
        "--gloo": use_gloo,
        "--mpi": use_mpi,
    }
    command = [find_horovodrun()]
    for name, value in options.items():
        if value is not None:
            command += [name, str(value)]
    if cooldown_range is not None:
        command += ["--blacklist-cooldown-range", *(str(value) for value in cooldown_range)]
    command += [name for name, is_on in flags.items() if is_on]
    if mpi_args:
        command += [f"--mpi-args={mpi_args}"]
    count = (min_num_proc or num_proc) if is_elastic else num_proc
    return _run(command, (func, tuple(args), dict(kwargs or {})), count, executable, env)


def _run(command, call, count, executable, env):
    import cloudpickle

    from horovod.runner.run_task import pack

    with tempfile.TemporaryDirectory(prefix="horovod-run-") as folder:
        box = Folder(folder)
        path = [os.path.abspath(entry) for entry in sys.path]
        box.put(CALL, pack({"path": path}, cloudpickle.dumps(call)))
        if "--mpi" not in command:
            command = [*command, "--run-func-folder", folder]
        command += [executable or sys.executable, "-m", "horovod.runner.run_task", folder]
        environment = dict(os.environ if env is None else env)
        code, tail = run_launcher(command, environment)
        return _collect(box, count, code, tail)


def _collect(box, count, code, tail):
    import cloudpickle

    from horovod.runner.run_task import unpack

    answers = {}
    for rank in range(count):
        blob = box.get(f"result.{rank}")
        if blob is not None:
            answers[rank] = unpack(blob)
    failed = [rank for rank, (plain, _) in answers.items() if plain["status"] != "ok"]
    if failed:
        first = min(failed, key=lambda rank: answers[rank][0]["time"])
        _raise(first, *answers[first])
    if code != 0:
        told = "\n".join(tail)
        raise RankError(f"horovodrun ended with exit code {code}.\n{told}", exit_code=code)
    missing = [rank for rank in range(count) if rank not in answers]
    if missing:
        raise RankError(f"No result came from rank {', '.join(map(str, missing))}.")
    return [cloudpickle.loads(answers[rank][1]) for rank in range(count)]


def _raise(rank, plain, pickled):
    import cloudpickle

    cause = None
    try:
        cause = cloudpickle.loads(pickled) if pickled else None
    except Exception:
        pass  # its class can't be imported here; the text says what it was
    raise RankError(
        FAILED.format(rank=rank, code=plain["code"])
        + f"Rank {rank} (pid {plain['pid']} on {plain['host']}) raised {plain['type']}:\n"
        + plain["traceback"],
        rank=rank,
        host=plain["host"],
        exit_code=plain["code"],
        traceback=plain["traceback"],
    ) from cause
