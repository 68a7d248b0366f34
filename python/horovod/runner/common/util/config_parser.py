# SPDX-License-Identifier: Apache-2.0
"""Settings from the command line and from --config-file, and the variables that carry them.

The rows are those of the library (horovod.runner.options). The name of every variable is also a
constant of this module: config_parser.HOROVOD_FUSION_THRESHOLD == "HOROVOD_FUSION_THRESHOLD".
"""

from horovod.runner import options

NCCL_IB_DISABLE = "NCCL_IB_DISABLE"


def _constants():
    return {row["name"]: row["name"] for row in options.rows() if row["name"]}


def _log_levels():
    return list(options.by_name("HOROVOD_LOG_LEVEL")["choices"])


def __getattr__(name):
    if name == "LOG_LEVELS":
        return _log_levels()
    if name.startswith("HOROVOD_") and name in _constants():
        return name
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__():
    return sorted({*globals(), *_constants(), "LOG_LEVELS"})


def _set_controller(args, controller):
    if controller is None or args.use_gloo or args.use_mpi:
        return
    if controller.lower() not in ("gloo", "mpi"):
        raise ValueError(f"No such controller supported: {controller}")
    args.use_gloo = controller.lower() == "gloo"
    args.use_mpi = controller.lower() == "mpi"


def set_args_from_config(args, config, override_args):
    """What the file says, for every argument that the command line did not set."""
    config = config or {}
    _set_controller(args, config.get("controller"))
    for row in options.passed_on():
        values = config.get(row["section"]) or {}
        if row["key"] in values and row["dest"] not in override_args:
            value = values[row["key"]]
            setattr(args, row["dest"], not value if row["file_inverted"] else value)


def validate_config_args(args):
    for row in options.passed_on():
        name, lowest, highest = row["dest"], options.lowest(row), row["option_highest"]
        value = getattr(args, name, None)
        if value is None or row["option_type"] not in ("int", "float"):
            continue
        if highest and not lowest <= value <= highest:
            raise ValueError(f"{name}={value} must be in [{lowest}, {highest}]")
        if value < lowest:
            raise ValueError(f"{name}={value} must be >= {lowest}")


def _applies(args, row):
    if row["needs"] is None:
        return True
    return bool(getattr(args, options.by_name(row["needs"])["dest"], None))


def set_env_from_args(env, args):
    """The variables of the workers; what an argument leaves open keeps the value it has."""
    for row in options.passed_on():
        value = getattr(args, row["dest"], None)
        if value is not None and _applies(args, row):
            env[row["name"]] = options.variable_text(row, value)
    for row in options.of_parser():
        if row["exports"] and getattr(args, row["dest"], None):
            env[row["exports"]] = "1"
    return env


def read_config_file(path):
    import yaml

    with open(path, encoding="utf-8") as file:
        return yaml.safe_load(file) or {}
