# SPDX-License-Identifier: Apache-2.0
"""The command line: every flag, its reading, its errors, and what it becomes for a worker."""

import pytest

KNOBS = [
    (["--fusion-threshold-mb", "32"], "HOROVOD_FUSION_THRESHOLD", str(32 << 20)),
    (["--cycle-time-ms", "20"], "HOROVOD_CYCLE_TIME", "20.0"),
    (["--cycle-time-ms", "3.25"], "HOROVOD_CYCLE_TIME", "3.25"),
    (["--cache-capacity", "512"], "HOROVOD_CACHE_CAPACITY", "512"),
    (["--hierarchical-allreduce"], "HOROVOD_HIERARCHICAL_ALLREDUCE", "1"),
    (["--no-hierarchical-allreduce"], "HOROVOD_HIERARCHICAL_ALLREDUCE", "0"),
    (["--hierarchical-allgather"], "HOROVOD_HIERARCHICAL_ALLGATHER", "1"),
    (["--no-hierarchical-allgather"], "HOROVOD_HIERARCHICAL_ALLGATHER", "0"),
    (["--torus-allreduce"], "HOROVOD_TORUS_ALLREDUCE", "1"),
    (["--no-torus-allreduce"], "HOROVOD_TORUS_ALLREDUCE", "0"),
    (["--autotune"], "HOROVOD_AUTOTUNE", "1"),
    (["--autotune", "--autotune-log-file", "a.csv"], "HOROVOD_AUTOTUNE_LOG", "a.csv"),
    (["--autotune", "--autotune-warmup-samples", "4"], "HOROVOD_AUTOTUNE_WARMUP_SAMPLES", "4"),
    (["--autotune", "--autotune-steps-per-sample", "5"], "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE", "5"),
    (
        ["--autotune", "--autotune-bayes-opt-max-samples", "6"],
        "HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES",
        "6",
    ),
    (
        ["--autotune", "--autotune-gaussian-process-noise", "0.5"],
        "HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE",
        "0.5",
    ),
    (["--autotune-log-file", "a.csv"], "HOROVOD_AUTOTUNE_LOG", None),
    (["--timeline-filename", "t.json"], "HOROVOD_TIMELINE", "t.json"),
    (
        ["--timeline-filename", "t.json", "--timeline-mark-cycles"],
        "HOROVOD_TIMELINE_MARK_CYCLES",
        "1",
    ),
    (["--timeline-mark-cycles"], "HOROVOD_TIMELINE_MARK_CYCLES", None),
    (["--no-stall-check"], "HOROVOD_STALL_CHECK_DISABLE", "1"),
    (["--stall-check"], "HOROVOD_STALL_CHECK_DISABLE", "0"),
    (["--stall-check-warning-time-seconds", "7"], "HOROVOD_STALL_CHECK_TIME_SECONDS", "7"),
    (["--stall-check-shutdown-time-seconds", "8"], "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "8"),
    (["--mpi-threads-disable"], "HOROVOD_MPI_THREADS_DISABLE", "1"),
    (["--no-mpi-threads-disable"], "HOROVOD_MPI_THREADS_DISABLE", "0"),
    (["--num-nccl-streams", "2"], "HOROVOD_NUM_NCCL_STREAMS", "2"),
    (["--thread-affinity", "3"], "HOROVOD_THREAD_AFFINITY", "3"),
    (["--gloo-timeout-seconds", "9"], "HOROVOD_GLOO_TIMEOUT_SECONDS", "9"),
    (["--log-level", "DEBUG"], "HOROVOD_LOG_LEVEL", "DEBUG"),
    (["--log-without-timestamp"], "HOROVOD_LOG_HIDE_TIME", "1"),
    (["--log-with-timestamp"], "HOROVOD_LOG_HIDE_TIME", "0"),
    (["--log-hide-timestamp"], "HOROVOD_LOG_HIDE_TIME", "1"),
    (["--no-log-hide-timestamp"], "HOROVOD_LOG_HIDE_TIME", "0"),
    (["--tcp"], "NCCL_IB_DISABLE", "1"),
]


def worker_env(result):
    assert result.returncode == 0, result.stderr
    lines = [line.split(":", 1)[1] for line in result.stdout.splitlines()]
    return dict(line.split("=", 1) for line in lines if "=" in line)


@pytest.mark.parametrize("flags,name,value", KNOBS)
def test_flag_becomes_environment(run, flags, name, value):
    env = worker_env(run("-np", 1, *flags, "env"))
    assert env.get(name) == value


def test_flag_not_given_leaves_environment_alone(run):
    assert (
        worker_env(run("-np", 1, "env", env={"HOROVOD_CYCLE_TIME": "x7"})).get("HOROVOD_CYCLE_TIME")
        == "x7"
    )


def test_prefix_of_long_option(run):
    assert worker_env(run("-np", 1, "--fusion", 2, "env"))["HOROVOD_FUSION_THRESHOLD"] == str(
        2 << 20
    )
    assert run("--num-p", 1, "true").returncode == 0
    assert run("-np=1", "true").returncode == 0


def test_command_takes_everything_behind_it(run):
    result = run("-np", 1, "echo", "--verbose", "-np", "4")
    assert result.stdout == "[0]<stdout>:--verbose -np 4\n"
    assert run("-np", 1, "--", "echo", "x").stdout == "[0]<stdout>:x\n"


def test_assignments_before_command(run):
    result = run("-np", 1, "A=1", "B=x y", "sh", "-c", 'echo "$A/$B"')
    assert result.stdout == "[0]<stdout>:1/x y\n"


@pytest.mark.parametrize(
    "args,text",
    [
        ([], "the following arguments are required: -np/--num-proc"),
        (["-np"], "argument -np/--num-proc: expected one argument"),
        (["-np", "x"], "argument -np/--num-proc: invalid int value: 'x'"),
        (["-np", "1", "--cycle-time-ms", "z"], "invalid float value: 'z'"),
        (["--nosuch"], "unrecognized arguments: --nosuch"),
        (["--log"], "ambiguous option: --log could match --log-level"),
        (["-np", "1", "--gloo", "--mpi"], "argument --mpi: not allowed with argument --gloo"),
        (["-np", "1", "-H", "a:1", "--hostfile", "f"], "not allowed with argument -H/--hosts"),
        (["-np", "1", "--log-level", "LOUD"], "invalid choice: 'LOUD'"),
        (["-np", "1", "--verbose=3"], "ignored explicit argument '3'"),
        (["-np", "1", "--blacklist-cooldown-range", "1"], "expected 2 arguments"),
        (["-np", "1", "--fusion-threshold-mb", "-1"], "fusion_threshold_mb=-1 must be >= 0"),
        (
            ["-np", "1", "--autotune-gaussian-process-noise", "2"],
            "autotune_gaussian_process_noise=2.0 must be in [0, 1]",
        ),
        (["-np", "2"], "the following arguments are required: command"),
        (["-np", "2", "--verbose", "--"], "the following arguments are required: command"),
        (["-np", "2", "A=1", "B=2"], "the following arguments are required: command"),
        (["-np", "2", "--min-np", "1"], "the following arguments are required: command"),
        (["-np", "2", "--mpi"], "the following arguments are required: command"),
        (["-np", "0", "true"], "-np must be"),
        (["-np", "1", "-H", "localhost", "true"], "Invalid host input, please make sure it has"),
        (["-np", "1", "-H", "-oProxyCommand=x:1", "true"], "expected one argument"),
        (["-np", "1", "--hosts=-oProxyCommand:1", "true"], "Invalid host input"),
        (
            ["-np", "5", "-H", "localhost:2,localhost:1", "true"],
            "Requested more processes (5) than there are available slots (3): localhost:3 = 3. "
            "Lower -np to 3, or give a host more slots: -H localhost:5",
        ),
        (
            ["-np", "9", "-H", "localhost:2,other:4", "true"],
            "available slots (6): localhost:2 + other:4 = 6. Lower -np to 6, or give a host more "
            "slots: -H localhost:5,other:4",
        ),
        (["-np", "1", "--start-timeout", "0", "true"], "--start-timeout must be"),
        (["-np", "1", "--ssh-port", "70000", "true"], "--ssh-port must be"),
        (["-np", "1", "--config-file", "/nosuch", "true"], "cannot read /nosuch"),
        (["-np", "2", "--min-np", "3", "true"], "--min-np 3 is over -np 2"),
    ],
)
def test_wrong_command_line_exits_2(run, args, text):
    result = run(*args, env={"A_SECRET": "for-nobody"})
    assert result.returncode == 2
    assert result.stderr.startswith("usage: horovodrun")
    assert f"horovodrun: error: {text}" in result.stderr or text in result.stderr
    assert result.stdout == "" and "for-nobody" not in result.stderr


def test_version_and_help(run):
    for flag in ("-v", "--version"):
        assert run(flag).stdout == "0.29.0\n"
    text = run("--help").stdout
    for title in ("Job:", "Hosts", "SSH:", "Tuning:", "Autotune", "Elastic", "Stall check:"):
        assert title in text
    assert "--no-autotune" not in text and "-agent" not in text
    assert max(map(len, text.splitlines())) <= 100


def test_help_tells_what_has_no_effect(run):
    """Each option of the workers without effect says so, as does the list of settings."""
    text = " ".join(run("--help").stdout.split())
    for flag in ("--torus-allreduce", "--no-torus-allreduce"):
        assert f"{flag} no effect yet" in text
    for flag in (
        "--hierarchical-allreduce",
        "--no-hierarchical-allgather",
        "--autotune",
        "--autotune-log-file FILE",
        "--autotune-warmup-samples N",
    ):
        assert flag in text and f"{flag} no effect yet" not in text
    assert "--num-nccl-streams N no effect yet" in text


def test_elastic_flags_are_read(run):
    for flags in (
        ["--min-np", "1"],
        ["--min-num-proc", "1", "--max-num-proc", "4", "--reset-limit", "3"],
        ["--host-discovery-script", "echo localhost", "--slots", "4", "--elastic-timeout", "9"],
        ["--min-np", "1", "--blacklist-cooldown-range", "1", "2", "--spares", "1"],
    ):
        result = run("-np", 2, *flags, "true")
        assert result.returncode == 0, result.stderr


def test_print_config(run):
    result = run("--print-config", "--cycle-time-ms", 7, env={"HOROVOD_KEY": "ab" * 32})
    assert result.returncode == 0
    assert "HOROVOD_CYCLE_TIME=7" in result.stdout
    assert "ab" * 32 not in result.stdout + result.stderr


def test_check_build_layout(run):
    result = run("--check-build")
    assert result.returncode == 0
    lines = result.stdout.split("\n")
    assert lines[0] == "Horovod v0.29.0:"
    labels = [line.strip()[4:] for line in lines if line.startswith("    [")]
    assert labels == [
        "TensorFlow", "PyTorch", "MXNet", "MPI", "Gloo", "NCCL", "DDL", "CCL", "MPI", "Gloo",
    ]  # fmt: skip
    assert lines[-2].endswith("Gloo    ") and lines[-1] == ""


def rows_of(text, title):
    lines = text.split(f"{title}:\n", 1)[1].split("\n\n", 1)[0].splitlines()
    return dict(line.strip().split(": ", 1) for line in lines)


def test_check_build_says_what_is_usable_and_why_not(run, tmp_path):
    """Every transport and backend of the core, with the reason if this machine can't use it."""
    text = run("--check-build").stdout
    if "This Python has no horovod package." in run("--check-build", "--verbose").stdout:
        pytest.skip("no horovod package beside this Python: nobody to ask")
    assert list(rows_of(text, "Available Transports")) == ["shm", "mpi", "tcp"]
    assert list(rows_of(text, "Available Backends")) == ["native", "mpi"]
    assert rows_of(text, "Available Transports")["shm"] == "usable"
    assert rows_of(text, "Available Backends")["native"] == "usable"
    env = {"HOROVOD_SHM_DISABLE": "1", "HOROVOD_MPI_LIBRARY": str(tmp_path / "nosuch.so")}
    text = run("--check-build", env=env).stdout
    transports = rows_of(text, "Available Transports")
    assert transports["shm"] == "not usable. HOROVOD_SHM_DISABLE is set."
    assert transports["mpi"].startswith("not usable. No MPI library was found.")
    assert transports["tcp"] == "usable"
    assert "No MPI library was found." in rows_of(text, "Available Backends")["mpi"]


def test_check_build_is_true_for_absent_frameworks(run, tmp_path):
    (tmp_path / "python3").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "python3").chmod(0o755)
    run.env.pop("VIRTUAL_ENV", None)
    result = run("--check-build", env={"PATH": f"{tmp_path}:{run.env['PATH']}"})
    assert result.returncode == 0 and "[X]" not in result.stdout
