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
from horovod.runner import options
from horovod.runner.api import run
from horovod.runner.common.util import config_parser, hosts, secret, settings, timeout
from horovod.runner.elastic import discovery
from horovod.runner.elastic.settings import ElasticSettings
from horovod.runner.gloo_run import gloo_run, gloo_run_elastic
from horovod.runner.js_run import is_jsrun_installed, js_run
from horovod.runner.launcher import find_horovodrun, run_launcher
from horovod.runner.mpi_run import mpi_run
from horovod.runner.util import lsf

CACHE_FOLDER = os.path.join(os.path.expanduser("~"), ".horovod")
CACHE_STALENESS_THRESHOLD_MINUTES = 60
SSH_ATTEMPTS = 5
SSH_CONNECT_TIMEOUT_S = 10

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


_TYPES = {"int": int, "float": float, "text": str, "level": str, "pair": int}


def _action(row, flag, given):
    """How argparse stores the option: keyword arguments of add_argument()."""
    if row["option_type"] == "names":
        return {"action": make_nic_action(deprecated=flag["single"])}
    if flag["sense"] != "value":
        value = flag["sense"] == "on"
        if flag["instead"]:
            return {"action": make_deprecated_bool_action(given, value, flag["instead"])}
        return {"action": make_override_bool_action(given, value)}
    if row["option_type"] == "flag":
        return {"action": "store_true"}
    known = {"type": _TYPES[row["option_type"]], "metavar": row["metavar"]}
    if row["option_type"] == "pair":
        return {**known, "nargs": 2, "metavar": tuple(row["metavar"].split())}
    if row["choices"]:
        known["choices"] = row["choices"]
    return {**known, "action": make_override_action(given)}


class _Groups:
    """Groups of a parser by title, and groups whose options refuse each other."""

    def __init__(self, parser):
        self._parser = parser
        self._titled = {}
        self._exclusive = {}

    def of(self, row):
        title = f"{row['group'].lower()} arguments"
        if title not in self._titled:
            self._titled[title] = self._parser.add_argument_group(title)
        word = row["exclusive"] or (row["id"] if options.is_switch(row) else None)
        if word is None:
            return self._titled[title]
        if word not in self._exclusive:
            self._exclusive[word] = self._titled[title].add_mutually_exclusive_group()
        return self._exclusive[word]


def _add_option(group, row, flag, given):
    text = argparse.SUPPRESS if flag["hidden"] else flag["help"].replace("%", "%%")
    names = flag["names"]
    return group.add_argument(*names, dest=row["dest"], help=text, **_action(row, flag, given))


def _make_parser(given):
    import horovod

    parser = argparse.ArgumentParser(prog="horovodrun", description="Horovod Runner")
    parser.add_argument("-v", "--version", action="version", version=horovod.__version__)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    groups = _Groups(parser)
    np_arg = None
    for row in options.of_parser():
        if row["dest"] == "check_build":
            names = row["flags"][0]["names"]
            groups.of(row).add_argument(*names, action=make_check_build_action(np_arg))
            continue
        for flag in row["flags"]:
            option = _add_option(groups.of(row), row, flag, given)
            if row["dest"] == "num_proc":
                np_arg = option
                np_arg.required = not lsf.LSFUtils.using_lsf()
    return parser


def default_args():
    """Every option by its name, as it is when nobody gives it."""
    parser = _make_parser(set())
    names = {action.dest for action in parser._actions} - {"help", "version"}
    options = {name: parser.get_default(name) for name in sorted(names)}
    return {**options, "num_proc": 1, "command": None, "run_func": None, "executable": None}


def parse_args(argv=None):
    """The options of horovodrun, from sys.argv unless given, with its config file applied."""
    given = set()
    args = _make_parser(given).parse_args(argv)
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
    row = options.by_name("HOROVOD_START_TIMEOUT")
    seconds = args.start_timeout or int(os.environ.get(row["name"], row["default"]))
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
    _launch_job(args, _settings_of(args), args.nics, args.command)


def _discovery_of(args):
    if args.host_discovery_script:
        return discovery.HostDiscoveryScript(args.host_discovery_script, args.slots)
    names, slots = hosts.parse_hosts_and_slots(_hosts_of(args))
    return discovery.FixedHosts({name: slots[name] for name in names})


def _run_elastic(args):
    """Run args.command as an elastic job; RuntimeError if it fails."""
    plan = ElasticSettings(
        discovery=_discovery_of(args),
        min_num_proc=args.min_num_proc or args.num_proc,
        max_num_proc=args.max_num_proc,
        elastic_timeout=args.elastic_timeout,
        reset_limit=args.reset_limit,
        cooldown_range=args.cooldown_range,
        num_proc=args.num_proc,
        verbose=2 if args.verbose else 0,
        ssh_port=args.ssh_port,
        ssh_identity_file=args.ssh_identity_file,
        output_filename=args.output_filename,
        nics=args.nics,
        prefix_output_with_timestamp=args.prefix_output_with_timestamp,
    )
    env = config_parser.set_env_from_args(dict(os.environ), args)
    gloo_run_elastic(plan, env, args.command)


def _run_function(args):
    """Run args.run_func() on all ranks; returns their results, by rank."""
    return run(
        args.run_func,
        num_proc=args.num_proc,
        min_num_proc=args.min_num_proc,
        max_num_proc=args.max_num_proc,
        slots=args.slots,
        reset_limit=args.reset_limit,
        cooldown_range=args.cooldown_range,
        hosts=args.hosts,
        hostfile=args.hostfile,
        host_discovery_script=args.host_discovery_script,
        start_timeout=args.start_timeout,
        ssh_port=args.ssh_port,
        ssh_identity_file=args.ssh_identity_file,
        disable_cache=args.disable_cache,
        output_filename=args.output_filename,
        verbose=args.verbose,
        use_gloo=args.use_gloo,
        use_mpi=args.use_mpi,
        mpi_args=args.mpi_args,
        network_interfaces=sorted(args.nics) if args.nics else None,
        executable=args.executable,
        env=config_parser.set_env_from_args(dict(os.environ), args),
    )


def _run(args):
    """Run a job as parse_args() read it."""
    if args.run_func is not None:
        return _run_function(args)
    return _run_elastic(args) if _is_elastic(args) else _run_static(args)


def run_commandline():
    """Become the native launcher, with the same arguments."""
    path = find_horovodrun()
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(path, [path, *sys.argv[1:]])


if __name__ == "__main__":
    run_commandline()
