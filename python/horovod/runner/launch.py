# SPDX-License-Identifier: Apache-2.0
"""The command line of horovodrun as Python programs know it.

The launcher itself is a native program; run_commandline() becomes it. What is here serves programs
that read its options (parse_args) or choose among ways to start (run_controller).
"""

import argparse
import os
import sys
import warnings

from horovod.common.util import gloo_built, mpi_built
from horovod.runner.common.util import config_parser, hosts, secret, settings, timeout
from horovod.runner.gloo_run import gloo_run
from horovod.runner.js_run import is_jsrun_installed, js_run
from horovod.runner.launcher import find_horovodrun, run_launcher
from horovod.runner.mpi_run import mpi_run
from horovod.runner.util import lsf

CACHE_FOLDER = os.path.join(os.path.expanduser("~"), ".horovod")
CACHE_STALENESS_THRESHOLD_MINUTES = 60
SSH_ATTEMPTS = 5
SSH_CONNECT_TIMEOUT_S = 10
START_TIMEOUT_S = 30

GLOO_NOT_BUILT = (
    "Gloo support has not been built.  If this is not expected, ensure CMake is installed and "
    "reinstall Horovod with HOROVOD_WITH_GLOO=1 to debug the build error."
)
MPI_NOT_BUILT = (
    "MPI support has not been built.  If this is not expected, ensure MPI is installed and "
    "reinstall Horovod with HOROVOD_WITH_MPI=1 to debug the build error."
)
NO_LSF = (
    "Horovod did not detect an LSF job.  The jsrun launcher can only be used in that environment. "
    "Please, pick a different launcher for other environments."
)
NOTHING_BUILT = (
    "Neither MPI nor Gloo support has been built. Try reinstalling Horovod ensuring that either "
    "MPI is installed (MPI) or CMake is installed (Gloo)."
)


# ---- actions of argparse ----


def make_override_action(override_args):
    """Stores the value, and that the command line gave it."""

    class Override(argparse.Action):
        def __call__(self, parser, namespace, values, option_string=None):
            override_args.add(self.dest)
            setattr(namespace, self.dest, values)

    return Override


def make_override_bool_action(override_args, value):
    class OverrideBool(argparse.Action):
        def __init__(self, option_strings, dest, required=False, help=None):
            super().__init__(
                option_strings=option_strings,
                dest=dest,
                nargs=0,
                const=value,
                default=None,
                required=required,
                help=help,
            )

        def __call__(self, parser, namespace, values, option_string=None):
            override_args.add(self.dest)
            setattr(namespace, self.dest, self.const)

    return OverrideBool


def make_override_true_action(override_args):
    return make_override_bool_action(override_args, True)


def make_override_false_action(override_args):
    return make_override_bool_action(override_args, False)


def make_deprecated_bool_action(override_args, value, replacement):
    base = make_override_bool_action(override_args, value)

    class Deprecated(base):
        def __call__(self, parser, namespace, values, option_string=None):
            warnings.warn(f"{option_string} is replaced by {replacement}", DeprecationWarning)
            super().__call__(parser, namespace, values, option_string)

    return Deprecated


def make_nic_action(deprecated=False):
    """Gathers interface names into one set."""

    class Nics(argparse.Action):
        def __call__(self, parser, namespace, values, option_string=None):
            names = {name.strip() for name in values.split(",")}
            if deprecated and len(names) > 1:
                warnings.warn(
                    f"{option_string} takes one interface, use --network-interfaces instead",
                    DeprecationWarning,
                )
            setattr(namespace, self.dest, (getattr(namespace, self.dest) or set()) | names)

    return Nics


def make_check_build_action(np_arg):
    """-cb needs no number of processes."""

    class CheckBuild(argparse.Action):
        def __init__(self, option_strings, dest, required=False, help=None):
            super().__init__(
                option_strings=option_strings,
                dest=dest,
                nargs=0,
                const=True,
                default=None,
                required=required,
                help=help,
            )

        def __call__(self, parser, namespace, values, option_string=None):
            np_arg.required = False
            setattr(namespace, self.dest, self.const)

    return CheckBuild


# ---- options ----


def _add_general(parser):
    import horovod

    parser.add_argument("-v", "--version", action="version", version=horovod.__version__)
    np_arg = parser.add_argument(
        "-np", "--num-proc", dest="num_proc", type=int, required=not lsf.LSFUtils.using_lsf()
    )
    parser.add_argument("-cb", "--check-build", action=make_check_build_action(np_arg))
    parser.add_argument("--disable-cache", action="store_true")
    parser.add_argument("--start-timeout", type=int)
    parser.add_argument("--network-interfaces", dest="nics", action=make_nic_action())
    parser.add_argument("--network-interface", dest="nics", action=make_nic_action(True))
    parser.add_argument("--output-filename")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    parser.add_argument("--config-file")
    group = parser.add_argument_group("SSH arguments")
    group.add_argument("-p", "--ssh-port", type=int)
    group.add_argument("-i", "--ssh-identity-file")


def _add_switch(group, given, name, is_negative_hidden=False):
    pair = group.add_mutually_exclusive_group()
    pair.add_argument(f"--{name}", action=make_override_true_action(given))
    pair.add_argument(
        f"--no-{name}",
        dest=name.replace("-", "_"),
        action=make_override_false_action(given),
        help=argparse.SUPPRESS if is_negative_hidden else None,
    )


def _add_values(group, given, kind, *names):
    for name in names:
        group.add_argument(f"--{name}", action=make_override_action(given), type=kind)


def _add_tuning(parser, given):
    group = parser.add_argument_group("tunable parameter arguments")
    _add_values(group, given, int, "fusion-threshold-mb", "cache-capacity")
    _add_values(group, given, float, "cycle-time-ms")
    for name in ("hierarchical-allreduce", "hierarchical-allgather", "torus-allreduce"):
        _add_switch(group, given, name)
    group = parser.add_argument_group("autotune arguments")
    _add_switch(group, given, "autotune", is_negative_hidden=True)
    _add_values(group, given, str, "autotune-log-file")
    _add_values(
        group,
        given,
        int,
        "autotune-warmup-samples",
        "autotune-steps-per-sample",
        "autotune-bayes-opt-max-samples",
    )
    _add_values(group, given, float, "autotune-gaussian-process-noise")


def _add_elastic(parser):
    group = parser.add_argument_group("elastic arguments")
    group.add_argument("--min-np", "--min-num-proc", dest="min_num_proc", type=int)
    group.add_argument("--max-np", "--max-num-proc", dest="max_num_proc", type=int)
    group.add_argument("--slots-per-host", dest="slots", type=int)
    group.add_argument("--elastic-timeout", type=int)
    group.add_argument("--reset-limit", type=int)
    group.add_argument("--blacklist-cooldown-range", dest="cooldown_range", type=int, nargs=2)


def _add_watching(parser, given):
    group = parser.add_argument_group("timeline arguments")
    _add_values(group, given, str, "timeline-filename")
    _add_switch(group, given, "timeline-mark-cycles", is_negative_hidden=True)
    group = parser.add_argument_group("stall check arguments")
    pair = group.add_mutually_exclusive_group()
    pair.add_argument("--no-stall-check", action=make_override_true_action(given))
    pair.add_argument(
        "--stall-check",
        dest="no_stall_check",
        action=make_override_false_action(given),
        help=argparse.SUPPRESS,
    )
    _add_values(
        group, given, int, "stall-check-warning-time-seconds", "stall-check-shutdown-time-seconds"
    )


def _add_libraries(parser, given):
    group = parser.add_argument_group("library arguments")
    _add_switch(group, given, "mpi-threads-disable", is_negative_hidden=True)
    group.add_argument("--mpi-args")
    group.add_argument("--tcp", dest="tcp_flag", action="store_true")
    group.add_argument("--binding-args")
    _add_values(group, given, int, "num-nccl-streams", "thread-affinity", "gloo-timeout-seconds")


def _add_logging(parser, given):
    group = parser.add_argument_group("logging arguments")
    group.add_argument(
        "--log-level", action=make_override_action(given), choices=config_parser.LOG_LEVELS
    )
    times = group.add_mutually_exclusive_group()
    on, off = make_override_true_action(given), make_override_false_action(given)
    dest = "log_with_timestamp"
    times.add_argument("--log-with-timestamp", dest=dest, action=on, help=argparse.SUPPRESS)
    times.add_argument("--log-without-timestamp", dest=dest, action=off)
    for name, value, better in (
        ("--log-hide-timestamp", False, "--log-without-timestamp"),
        ("--no-log-hide-timestamp", True, "--log-with-timestamp"),
    ):
        action = make_deprecated_bool_action(given, value, better)
        times.add_argument(name, dest=dest, action=action, help=argparse.SUPPRESS)
    times.add_argument(
        "-prefix-timestamp",
        "--prefix-output-with-timestamp",
        dest="prefix_output_with_timestamp",
        action="store_true",
    )


def _add_hosts(parser, given):
    group = parser.add_argument_group("host arguments").add_mutually_exclusive_group()
    group.add_argument("-H", "--hosts", dest="hosts")
    group.add_argument("-hostfile", "--hostfile", dest="hostfile")
    group.add_argument("--host-discovery-script", action=make_override_action(given))
    group = parser.add_argument_group("controller arguments").add_mutually_exclusive_group()
    for name in ("gloo", "mpi", "jsrun"):
        group.add_argument(f"--{name}", dest=f"use_{name}", action="store_true")


def parse_args(argv=None):
    """The options of horovodrun, from sys.argv unless given, with its config file applied."""
    given = set()
    parser = argparse.ArgumentParser(prog="horovodrun", description="Horovod Runner")
    _add_general(parser)
    _add_tuning(parser, given)
    _add_elastic(parser)
    _add_watching(parser, given)
    _add_libraries(parser, given)
    _add_logging(parser, given)
    _add_hosts(parser, given)
    args = parser.parse_args(argv)
    if args.config_file:
        content = config_parser.read_config_file(args.config_file)
        config_parser.set_args_from_config(args, content, given)
    config_parser.validate_config_args(args)
    args.run_func = None
    args.executable = None
    if args.check_build:
        check_build(args.verbose)
        sys.exit(0)
    return args


def check_build(verbose):
    """Prints what is usable on this machine."""
    run_launcher([find_horovodrun(), "--check-build", *(["--verbose"] if verbose else [])], None)


# ---- choosing a way to start ----


def _is_elastic(args):
    return args.host_discovery_script is not None or args.min_num_proc is not None


def is_gloo_used(use_gloo=None, use_mpi=None, use_jsrun=None):
    return bool(use_gloo or (not use_mpi and not use_jsrun and not mpi_built()))


def _choose(use_gloo, use_mpi, use_jsrun, verbose):
    if use_gloo:
        if not gloo_built(verbose=verbose):
            raise ValueError(GLOO_NOT_BUILT)
        return "gloo"
    if use_mpi:
        if not mpi_built(verbose=verbose):
            raise ValueError(MPI_NOT_BUILT)
        return "mpi"
    if use_jsrun:
        if not mpi_built(verbose=verbose):
            raise ValueError(MPI_NOT_BUILT)
        if not lsf.LSFUtils.using_lsf():
            raise ValueError(NO_LSF)
        return "jsrun"
    if mpi_built(verbose=verbose):
        return "jsrun" if lsf.LSFUtils.using_lsf() and is_jsrun_installed() else "mpi"
    if gloo_built(verbose=verbose):
        return "gloo"
    raise ValueError(NOTHING_BUILT)


def run_controller(use_gloo, gloo_run, use_mpi, mpi_run, use_jsrun, js_run, verbosity):
    """Calls the one of the three functions that fits what was asked for and what there is."""
    verbose = verbosity is not None and verbosity >= 2
    chosen = _choose(use_gloo, use_mpi, use_jsrun, verbose)
    {"gloo": gloo_run, "mpi": mpi_run, "jsrun": js_run}[chosen]()


# ---- running ----


def _hosts_of(args):
    if args.hostfile:
        return hosts.parse_host_files(args.hostfile)
    if args.hosts:
        return args.hosts
    if lsf.LSFUtils.using_lsf():
        gpus = lsf.LSFUtils.get_num_gpus()
        return ",".join(f"{host}:{gpus}" for host in lsf.LSFUtils.get_compute_hosts())
    return f"localhost:{args.num_proc}"


def _settings_of(args):
    seconds = args.start_timeout or int(os.environ.get("HOROVOD_START_TIMEOUT", START_TIMEOUT_S))
    limit = timeout.Timeout(seconds, "Timed out waiting for {activity}.")
    return settings.Settings(
        hosts=_hosts_of(args),
        verbose=2 if args.verbose else 0,
        ssh_port=args.ssh_port,
        ssh_identity_file=args.ssh_identity_file,
        extra_mpi_args=args.mpi_args,
        tcp_flag=args.tcp_flag,
        binding_args=args.binding_args,
        key=secret.make_secret_key(),
        start_timeout=limit,
        num_proc=args.num_proc,
        output_filename=args.output_filename,
        run_func_mode=args.run_func is not None,
        nics=args.nics,
        prefix_output_with_timestamp=args.prefix_output_with_timestamp,
    )


def _launch_job(args, settings, nics, command):
    env = config_parser.set_env_from_args(dict(os.environ), args)
    run_controller(
        args.use_gloo,
        lambda: gloo_run(settings, nics, env, None, command),
        args.use_mpi,
        lambda: mpi_run(settings, nics, env, command),
        args.use_jsrun,
        lambda: js_run(settings, nics, env, command),
        settings.verbose,
    )


def _run_static(args):
    """Run args.command to its end on hosts that do not change; RuntimeError if a rank fails."""
    if args.run_func is not None:
        raise NotImplementedError("to run a function, call horovod.run()")
    _launch_job(args, _settings_of(args), args.nics, args.command)


def _run_elastic(args):
    raise NotImplementedError("elastic jobs are started by horovodrun: --min-np, --max-np")


def _run(args):
    """Run a job as parse_args() read it."""
    return _run_elastic(args) if _is_elastic(args) else _run_static(args)


def run_commandline():
    """Become the native launcher, with the same arguments."""
    path = find_horovodrun()
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(path, [path, *sys.argv[1:]])


if __name__ == "__main__":
    run_commandline()
