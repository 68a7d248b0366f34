# SPDX-License-Identifier: Apache-2.0
"""Starting ranks without MPI: gloo_run() by the native launcher, launch_gloo() in a caller's way.

The names are those that other programs import; the controller behind them is the native one.
"""

import os
import shlex
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

from horovod.runner import slot_task
from horovod.runner.common.util import env as env_util
from horovod.runner.common.util import hosts as hosts_util
from horovod.runner.common.util import safe_shell_exec
from horovod.runner.common.util.hosts import get_host_assignments, parse_hosts  # noqa: F401
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


SLOT_NAMES = (
    "HOROVOD_HOSTNAME",
    *(f"HOROVOD_{a}{b}" for a in ("", "LOCAL_", "CROSS_") for b in ("RANK", "SIZE")),
)


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
    """The command of a slot as one line: the slot's and the run's variables, the command.

    These are numbers, names of hosts and addresses. Neither the job's key nor anything of `env` is
    among them: every user of the machine can read a command line.
    """

    def command_of(slot_info):
        return f"env {_assignments(create_slot_env_vars(slot_info))} {run_command}"

    return command_of


def _environment_to_hand_over(env, run_variables):
    """What of the caller's environment the ranks get; a rank's place comes by its line."""
    told = {"HOROVOD_KEY", *run_variables, *SLOT_NAMES}
    return {n: v for n, v in env.items() if env_util.is_exportable(n) and n not in told}


def _open_output(path):
    """A file that only we can read: what programs print may be secret. Links are not followed."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.fdopen(os.open(path, flags, 0o600), "w", encoding="utf-8")


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
            files = [_open_output(folder / name) for name in ("stdout", "stderr")]
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

    What exec_command starts must inherit os.environ, in which the job's key is, or be given it:
    with the key it gets `env` out of the rendezvous (slot_task.py) and then becomes the command.
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
        run_variables = create_run_env_vars(server_ip, nics, port)
        handed_over = slot_task.pack(_environment_to_hand_over(env or {}, run_variables))
        if not server.put(slot_task.SCOPE, slot_task.NAME, handed_over):
            raise ValueError("the environment is too large to be handed over")
        words = [sys.executable, "-m", "horovod.runner.slot_task", *command]
        line_of = _slot_info_to_command_fn(get_run_command(words, server_ip, nics, port), env)
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
    return ["-np", str(settings.num_proc), "-H", settings.hosts, *_common_options(settings, nics)]


def _common_options(settings, nics=None):
    options = []
    nics = nics or settings.nics
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


# ---- elastic jobs ----


class _DiscoveryFile:
    """Lets the launcher use a HostDiscovery of the caller's: a thread writes down what it finds.

    `command` prints that. The caller's class may be anything, and lives in this process.
    """

    PERIOD_S = 1.0

    def __init__(self, discovery):
        self._discovery = discovery
        self._folder = tempfile.TemporaryDirectory(prefix="horovod-discovery-")
        self._path = Path(self._folder.name) / "hosts"
        self._is_over = threading.Event()
        self._write()  # a discovery that fails at once is an error of the caller's
        script = Path(self._folder.name) / "discover"
        script.write_text(f"#!/bin/sh\nexec cat {shlex.quote(str(self._path))}\n")
        script.chmod(0o700)
        self.command = str(script)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _write(self):
        found = self._discovery.find_available_hosts_and_slots()
        new = self._path.with_suffix(".new")
        new.write_text("".join(f"{host}:{slots}\n" for host, slots in found.items()))
        new.replace(self._path)

    def _run(self):
        while not self._is_over.wait(self.PERIOD_S):
            try:
                self._write()
            except Exception as error:
                sys.stderr.write(f"Finding hosts failed, will try again: {error}\n")

    def close(self):
        self._is_over.set()
        self._thread.join()
        self._folder.cleanup()


def _elastic_options(settings):
    options = []
    for name, value in (
        ("-np", settings.num_proc or settings.min_num_proc),
        ("--min-np", settings.min_num_proc),
        ("--max-np", settings.max_num_proc),
        ("--elastic-timeout", settings.elastic_timeout),
        ("--reset-limit", settings.reset_limit),
    ):
        if value is not None:
            options += [name, str(value)]
    if settings.cooldown_range:
        options += ["--blacklist-cooldown-range", *map(str, settings.cooldown_range)]
    return options


def gloo_run_elastic(settings, env, command_or_func, executable=None):
    """Run a command (a list of words), or a function, as an elastic job by horovodrun.

    settings: ElasticSettings; its `discovery` may be any HostDiscovery. A function's results are
    returned as horovod.run() does. RuntimeError if the job fails.
    """
    from horovod.runner.api import _run

    found = _DiscoveryFile(settings.discovery)
    try:
        line = [find_horovodrun(), "--gloo", *_elastic_options(settings)]
        line += ["--host-discovery-script", found.command, *_common_options(settings)]
        environment = dict(os.environ if env is None else env)
        if callable(command_or_func):
            call = (command_or_func, (), {})
            return _run(line, call, settings.min_num_proc, executable, environment)
        code, tail = run_launcher([*line, *command_or_func], environment)
    finally:
        found.close()
    if code != 0:
        raise RuntimeError("\n".join(tail[-4:]) or f"horovodrun ended with exit code {code}")
    return None


def launch_gloo_elastic(
    command_or_func, exec_command, settings, env, get_common_interfaces, rendezvous, executable
):
    """As gloo_run_elastic(): horovodrun starts the ranks, and is their rendezvous."""
    return gloo_run_elastic(settings, env, command_or_func, executable)


def _create_elastic_worker_fn(exec_command, run_command, env, event):
    raise NotImplementedError(
        "horovodrun starts the workers of elastic jobs; give a function of your own to "
        "horovod.runner.elastic.driver.ElasticDriver.start()"
    )


def _get_min_start_hosts(settings):
    """How many hosts there must be for a job to start: interfaces are never compared."""
    return 1
