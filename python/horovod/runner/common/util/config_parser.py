# SPDX-License-Identifier: Apache-2.0
"""Settings from the command line and from --config-file, and the variables that carry them.

One table: an argument's name, its place in the config file, and the variable of the workers.
"""

LOG_LEVELS = ["TRACE", "DEBUG", "INFO", "WARNING", "ERROR", "FATAL"]

HOROVOD_FUSION_THRESHOLD = "HOROVOD_FUSION_THRESHOLD"
HOROVOD_CYCLE_TIME = "HOROVOD_CYCLE_TIME"
HOROVOD_CACHE_CAPACITY = "HOROVOD_CACHE_CAPACITY"
HOROVOD_HIERARCHICAL_ALLREDUCE = "HOROVOD_HIERARCHICAL_ALLREDUCE"
HOROVOD_HIERARCHICAL_ALLGATHER = "HOROVOD_HIERARCHICAL_ALLGATHER"
HOROVOD_TORUS_ALLREDUCE = "HOROVOD_TORUS_ALLREDUCE"
HOROVOD_AUTOTUNE = "HOROVOD_AUTOTUNE"
HOROVOD_AUTOTUNE_LOG = "HOROVOD_AUTOTUNE_LOG"
HOROVOD_AUTOTUNE_WARMUP_SAMPLES = "HOROVOD_AUTOTUNE_WARMUP_SAMPLES"
HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE = "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE"
HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES = "HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES"
HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE = "HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE"
HOROVOD_TIMELINE = "HOROVOD_TIMELINE"
HOROVOD_TIMELINE_MARK_CYCLES = "HOROVOD_TIMELINE_MARK_CYCLES"
HOROVOD_STALL_CHECK_DISABLE = "HOROVOD_STALL_CHECK_DISABLE"
HOROVOD_STALL_CHECK_TIME_SECONDS = "HOROVOD_STALL_CHECK_TIME_SECONDS"
HOROVOD_STALL_SHUTDOWN_TIME_SECONDS = "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS"
HOROVOD_MPI_THREADS_DISABLE = "HOROVOD_MPI_THREADS_DISABLE"
HOROVOD_NUM_NCCL_STREAMS = "HOROVOD_NUM_NCCL_STREAMS"
HOROVOD_THREAD_AFFINITY = "HOROVOD_THREAD_AFFINITY"
HOROVOD_GLOO_TIMEOUT_SECONDS = "HOROVOD_GLOO_TIMEOUT_SECONDS"
HOROVOD_LOG_LEVEL = "HOROVOD_LOG_LEVEL"
HOROVOD_LOG_HIDE_TIME = "HOROVOD_LOG_HIDE_TIME"
NCCL_IB_DISABLE = "NCCL_IB_DISABLE"


def _flag(value):
    return "1" if value else "0"


def _not_flag(value):
    return "0" if value else "1"


def _mebibytes(value):
    return str(value * 1024 * 1024)


# argument, section and key of the config file, variable, how its value is written, and the argument
# without which it says nothing
_ROWS = (
    ("fusion_threshold_mb", "params", None, HOROVOD_FUSION_THRESHOLD, _mebibytes, None),
    ("cycle_time_ms", "params", None, HOROVOD_CYCLE_TIME, str, None),
    ("cache_capacity", "params", None, HOROVOD_CACHE_CAPACITY, str, None),
    ("hierarchical_allreduce", "params", None, HOROVOD_HIERARCHICAL_ALLREDUCE, _flag, None),
    ("hierarchical_allgather", "params", None, HOROVOD_HIERARCHICAL_ALLGATHER, _flag, None),
    ("torus_allreduce", "params", None, HOROVOD_TORUS_ALLREDUCE, _flag, None),
    ("autotune", "autotune", "enabled", HOROVOD_AUTOTUNE, _flag, "autotune"),
    ("autotune_log_file", "autotune", "log_file", HOROVOD_AUTOTUNE_LOG, str, "autotune"),
    (
        "autotune_warmup_samples",
        "autotune",
        "warmup_samples",
        HOROVOD_AUTOTUNE_WARMUP_SAMPLES,
        str,
        "autotune",
    ),
    (
        "autotune_steps_per_sample",
        "autotune",
        "steps_per_sample",
        HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE,
        str,
        "autotune",
    ),
    (
        "autotune_bayes_opt_max_samples",
        "autotune",
        "bayes_opt_max_samples",
        HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES,
        str,
        "autotune",
    ),
    (
        "autotune_gaussian_process_noise",
        "autotune",
        "gaussian_process_noise",
        HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE,
        str,
        "autotune",
    ),
    ("timeline_filename", "timeline", "filename", HOROVOD_TIMELINE, str, None),
    (
        "timeline_mark_cycles",
        "timeline",
        "mark_cycles",
        HOROVOD_TIMELINE_MARK_CYCLES,
        _flag,
        "timeline_filename",
    ),
    ("no_stall_check", None, None, HOROVOD_STALL_CHECK_DISABLE, _flag, None),
    (
        "stall_check_warning_time_seconds",
        "stall_check",
        "warning_time_seconds",
        HOROVOD_STALL_CHECK_TIME_SECONDS,
        str,
        None,
    ),
    (
        "stall_check_shutdown_time_seconds",
        "stall_check",
        "shutdown_time_seconds",
        HOROVOD_STALL_SHUTDOWN_TIME_SECONDS,
        str,
        None,
    ),
    ("mpi_threads_disable", "library_options", None, HOROVOD_MPI_THREADS_DISABLE, _flag, None),
    ("num_nccl_streams", "library_options", None, HOROVOD_NUM_NCCL_STREAMS, str, None),
    ("thread_affinity", "library_options", None, HOROVOD_THREAD_AFFINITY, str, None),
    ("gloo_timeout_seconds", "library_options", None, HOROVOD_GLOO_TIMEOUT_SECONDS, str, None),
    ("log_level", "logging", "level", HOROVOD_LOG_LEVEL, str, None),
    ("log_with_timestamp", "logging", "with_timestamp", HOROVOD_LOG_HIDE_TIME, _not_flag, None),
)

_NOT_NEGATIVE = (
    "fusion_threshold_mb",
    "cycle_time_ms",
    "cache_capacity",
    "autotune_warmup_samples",
    "autotune_steps_per_sample",
    "autotune_bayes_opt_max_samples",
    "stall_check_warning_time_seconds",
    "stall_check_shutdown_time_seconds",
    "num_nccl_streams",
    "thread_affinity",
    "gloo_timeout_seconds",
)


def set_args_from_config(args, config, override_args):
    """What the file says, for every argument that the command line did not set."""
    config = config or {}
    controller = config.get("controller")
    if controller is not None and not (args.use_gloo or args.use_mpi):
        if controller.lower() not in ("gloo", "mpi"):
            raise ValueError(f"No such controller supported: {controller}")
        args.use_gloo = controller.lower() == "gloo"
        args.use_mpi = controller.lower() == "mpi"
    for name, section, key, _, _, _ in _ROWS:
        values = config.get(section) or {}
        if name not in override_args and (key or name) in values:
            setattr(args, name, values[key or name])
    stall_check = config.get("stall_check") or {}
    if "no_stall_check" not in override_args and "enabled" in stall_check:
        args.no_stall_check = not stall_check["enabled"]


def validate_config_args(args):
    for name in _NOT_NEGATIVE:
        value = getattr(args, name, None)
        if value is not None and value < 0:
            raise ValueError(f"{name}={value} must be >= 0")
    noise = getattr(args, "autotune_gaussian_process_noise", None)
    if noise is not None and not 0 <= noise <= 1:
        raise ValueError(f"autotune_gaussian_process_noise={noise} must be in [0, 1]")


def set_env_from_args(env, args):
    """The variables of the workers; what an argument leaves open keeps the value it has."""
    for name, _, _, variable, text, needs in _ROWS:
        value = getattr(args, name, None)
        if value is None or (needs is not None and not getattr(args, needs, None)):
            continue
        env[variable] = text(value)
    if getattr(args, "tcp_flag", None):
        env[NCCL_IB_DISABLE] = "1"
    return env


def read_config_file(path):
    import yaml

    with open(path, encoding="utf-8") as file:
        return yaml.safe_load(file) or {}
