# SPDX-License-Identifier: Apache-2.0
"""horovod.run(): the arguments, the launcher's command line, and what came back."""

import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Sequence
from typing import Any

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

    def __init__(
        self,
        message: str,
        rank: int | None = None,
        host: str | None = None,
        exit_code: int | None = None,
        traceback: str | None = None,
    ) -> None:
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
    func: Callable,
    args: Sequence = (),
    kwargs: dict[str, Any] | None = None,
    num_proc: int = 1,
    min_num_proc: int | None = None,
    max_num_proc: int | None = None,
    slots: int | None = None,
    reset_limit: int | None = None,
    cooldown_range: Any = None,
    hosts: str | None = None,
    hostfile: str | None = None,
    host_discovery_script: str | None = None,
    start_timeout: int | None = None,
    ssh_port: int | None = None,
    ssh_identity_file: str | None = None,
    disable_cache: bool | None = None,
    output_filename: str | None = None,
    verbose: int | None = None,
    use_gloo: bool | None = None,
    use_mpi: bool | None = None,
    mpi_args: str | None = None,
    network_interface: str | None = None,
    network_interfaces: str | Sequence[str] | None = None,
    executable: str | None = None,
    np: int | None = None,
    min_np: int | None = None,
    max_np: int | None = None,
    *,
    env: dict[str, str] | None = None,
) -> list:
    """Run func(*args, **kwargs) on num_proc ranks and return their results as a list, by rank.

    The ranks are started by the launcher `horovodrun`, and most arguments are its options.
    `executable` is the Python of the ranks (this one), `env` their environment (ours). The function
    is pickled by value where it must be (notebooks, `__main__`), so no `if __name__ == '__main__'`
    is needed, and any thread may call. If a rank fails, the others are ended and RankError, a
    RuntimeError, says which it was, with its traceback.

    With `min_num_proc` or `host_discovery_script` the job is elastic (docs/elastic.md): it goes on
    when ranks are lost, and the results are those of the first `min_num_proc` ranks that were there
    in the end.
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


def _run(command, call, count, executable, env, stdout=None, stderr=None):
    import cloudpickle

    from horovod.runner.run_task import pack

    with tempfile.TemporaryDirectory(prefix="horovod-run-") as folder:
        box = Folder(folder)
        path = [os.path.abspath(entry) for entry in sys.path]
        box.put(CALL, pack({"path": path}, cloudpickle.dumps(call)))
        if "--mpi" not in command:
            command = [*command, "--run-func-folder", folder]
        if not isinstance(executable, list):
            executable = [executable or sys.executable]
        command += [*executable, "-m", "horovod.runner.run_task", folder]
        environment = dict(os.environ if env is None else env)
        code, tail = run_launcher(command, environment, stdout, stderr)
        return _collect(box, count, code, tail)


def _collect(box, count, code, tail):
    """The results by rank, or an exception.

    A job that succeeded may have lost workers on the way, if it was elastic.
    """
    import cloudpickle

    from horovod.runner.run_task import unpack

    answers = {}
    for rank in range(count):
        blob = box.get(f"result.{rank}")
        if blob is not None:
            answers[rank] = unpack(blob)
    failed = [rank for rank, (plain, _) in answers.items() if plain["status"] != "ok"]
    if failed and code != 0:
        first = min(failed, key=lambda rank: answers[rank][0]["time"])
        _raise(first, *answers[first])
    if code != 0:
        told = "\n".join(tail)
        raise RankError(f"horovodrun ended with exit code {code}.\n{told}", exit_code=code)
    missing = [rank for rank in range(count) if rank not in answers or rank in failed]
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
