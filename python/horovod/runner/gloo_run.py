# SPDX-License-Identifier: Apache-2.0
"""Starting ranks without MPI: gloo_run() by the native launcher, launch_gloo() in a caller's way.

The names are those that other programs import; the controller behind them is the native one.
"""

import os
import shlex
import signal
import sys
import threading
import time
from pathlib import Path

from horovod.runner.common.util import env as env_util
from horovod.runner.common.util import hosts as hosts_util
from horovod.runner.common.util import safe_shell_exec
from horovod.runner.http.http_server import RendezvousServer
from horovod.runner.launcher import find_horovodrun, run_launcher
from horovod.runner.util import network, threads

FAILED = (
    "Horovod detected that one or more processes exited with non-zero status, thus causing the "
    "job to be terminated. The first process to do so was:\n"
    "Process name: {name}\nExit code: {code}\n"
)


class MultiFile:
    """Writes to several text streams at once."""

    def __init__(self, files):
        self._files = files

    def write(self, text):
        for file in self._files:
            file.write(text)

    def flush(self):
        for file in self._files:
            file.flush()


def _pad_rank(rank, size):
    return str(rank).zfill(len(str(max(size - 1, 0))))


def _mkdir_p(path):
    Path(path).mkdir(parents=True, exist_ok=True)


def create_slot_env_vars(slot_info):
    return {
        "HOROVOD_HOSTNAME": str(slot_info.hostname),
        "HOROVOD_RANK": str(slot_info.rank),
        "HOROVOD_SIZE": str(slot_info.size),
        "HOROVOD_LOCAL_RANK": str(slot_info.local_rank),
        "HOROVOD_LOCAL_SIZE": str(slot_info.local_size),
        "HOROVOD_CROSS_RANK": str(slot_info.cross_rank),
        "HOROVOD_CROSS_SIZE": str(slot_info.cross_size),
    }


def create_run_env_vars(server_ip, nics, port, elastic=False):
    variables = {
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": server_ip,
        "HOROVOD_GLOO_RENDEZVOUS_PORT": str(port),
        "HOROVOD_CONTROLLER": "gloo",
        "HOROVOD_CPU_OPERATIONS": "gloo",
    }
    if nics:
        variables["HOROVOD_GLOO_IFACE"] = sorted(nics)[0]
        variables["NCCL_SOCKET_IFNAME"] = ",".join(sorted(nics))
    if elastic:
        variables["HOROVOD_ELASTIC"] = "1"
    return variables


def _assignments(variables):
    return " ".join(f"{name}={shlex.quote(str(value))}" for name, value in variables.items())


def get_run_command(command, server_ip, nics, port, elastic=False):
    quoted = " ".join(shlex.quote(word) for word in command)
    return f"{_assignments(create_run_env_vars(server_ip, nics, port, elastic))} {quoted}"


def _slot_info_to_command_fn(run_command, env):
    """The command of a slot as one line: env, slot, forwarded and run variables, command.

    The job's key is never among them: it comes by the environment itself.
    """
    forwarded = {name: env[name] for name in env if env_util.is_exportable(name)}

    def command_of(slot_info):
        slot = _assignments(create_slot_env_vars(slot_info))
        return f"env {slot} {_assignments(forwarded)} {run_command}"

    return command_of


def _exec_command_fn(settings):
    """Runs a command line for a slot of this machine; (its exit code, when it ended)."""

    def exec_command(command, slot_info, events):
        if network.filter_local_addresses([slot_info.hostname]):
            raise RuntimeError(
                f"{slot_info.hostname} is another machine; only horovodrun (gloo_run) starts ranks "
                "there, because it gives them the job's key"
            )
        stdout = stderr = None
        files = []
        if settings.output_filename:
            folder = Path(settings.output_filename)
            folder = folder / f"rank.{_pad_rank(slot_info.rank, settings.num_proc)}"
            _mkdir_p(folder)
            files = [(folder / name).open("w", encoding="utf-8") for name in ("stdout", "stderr")]
            stdout = MultiFile([sys.stdout, files[0]])
            stderr = MultiFile([sys.stderr, files[1]])
        try:
            code = safe_shell_exec.execute(
                command,
                index=slot_info.rank,
                stdout=stdout,
                stderr=stderr,
                events=events,
                prefix_output_with_timestamp=settings.prefix_output_with_timestamp,
            )
        finally:
            for file in files:
                file.close()
        if code != 0:
            print(f"Process {slot_info.rank} exit with status code {code}.")
        return code, time.time()

    return exec_command


def register_shutdown_event():
    """An event that SIGINT and SIGTERM set, in the main thread; elsewhere nobody sets it."""
    event = threading.Event()
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: event.set())
    return event


def launch_gloo(command, exec_command, settings, nics, env, server_ip):
    """Serve a rendezvous and start every slot by exec_command(line, slot, events) in a thread.

    What exec_command starts must inherit os.environ, in which the job's key is, or be given it.
    """
    if settings.output_filename:
        _mkdir_p(settings.output_filename)
    slots = hosts_util.get_host_assignments(
        hosts_util.parse_hosts(settings.hosts), settings.num_proc, settings.num_proc
    )
    handlers = _handlers()
    server = RendezvousServer(settings.verbose, address=server_ip)
    port = server.start()
    try:
        server.init(slots)
        line_of = _slot_info_to_command_fn(get_run_command(command, server_ip, nics, port), env)
        stop = register_shutdown_event()
        results = _run_slots(slots, line_of, exec_command, stop)
    finally:
        server.stop()
        _restore(handlers)
    failed = [(when, rank, code) for rank, (code, when) in results.items() if code != 0]
    if failed:
        _, rank, code = min(failed)
        raise RuntimeError(FAILED.format(name=rank, code=code))


def _run_slots(slots, line_of, exec_command, stop):
    def run(slot):
        code, when = exec_command(line_of(slot), slot, [stop])
        if code != 0 and not stop.is_set():
            print(f"Terminating remaining workers after failure of Process {slot.rank}.")
            stop.set()
        return code, when

    return threads.execute_function_multithreaded(run, [[slot] for slot in slots])


def _handlers():
    if threading.current_thread() is not threading.main_thread():
        return {}
    return {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}


def _restore(handlers):
    for number, handler in handlers.items():
        signal.signal(number, handler)


def launcher_options(settings, nics):
    """The options of horovodrun that say what these settings say."""
    options = ["-np", str(settings.num_proc), "-H", settings.hosts]
    for name, value in (
        ("--ssh-port", settings.ssh_port),
        ("--ssh-identity-file", settings.ssh_identity_file),
        ("--output-filename", settings.output_filename),
        ("--network-interfaces", ",".join(sorted(nics)) if nics else None),
    ):
        if value:
            options += [name, str(value)]
    if settings.prefix_output_with_timestamp:
        options.append("--prefix-output-with-timestamp")
    if settings.verbose and settings.verbose >= 2:
        options.append("--verbose")
    return options


def gloo_run(settings, nics, env, server_ip, command):
    """Run a command, a list of words, on all ranks by horovodrun; RuntimeError if one fails."""
    line = [find_horovodrun(), "--gloo", *launcher_options(settings, nics), *command]
    code, tail = run_launcher(line, dict(os.environ if env is None else env))
    if code != 0:
        raise RuntimeError("\n".join(tail[-4:]) or f"horovodrun ended with exit code {code}")


def _create_elastic_worker_fn(exec_command, run_command, env, event):
    raise NotImplementedError("elastic jobs are started by horovodrun: --min-np, --max-np")


def gloo_run_elastic(settings, env, command_or_func, executable):
    raise NotImplementedError("elastic jobs are started by horovodrun: --min-np, --max-np")


def launch_gloo_elastic(
    command_or_func, exec_command, settings, env, get_common_interfaces, rendezvous, executable
):
    raise NotImplementedError("elastic jobs are started by horovodrun: --min-np, --max-np")
