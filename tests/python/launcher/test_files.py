# SPDX-License-Identifier: Apache-2.0
"""Host files, batch systems and the config file, through the real program."""

import pytest


def ranks_of(result):
    assert result.returncode == 0, result.stderr
    pairs = [line.split(":", 1)[1].split() for line in result.stdout.splitlines()]
    return sorted((int(rank), host) for host, rank in pairs)


SHOW = ["sh", "-c", "echo $HOROVOD_HOSTNAME $HOROVOD_RANK"]


@pytest.mark.parametrize(
    "text,want",
    [
        ("localhost slots=2\n", ["localhost", "localhost"]),
        ("# all of ours\n\n  localhost   slots = 2  # two\n", ["localhost"] * 2),
        ("localhost slots=1 max-slots=4\n127.0.0.1 max_slots=2", ["localhost", "127.0.0.1"]),
        ("localhost\nlocalhost\n", ["localhost"] * 2),
        ("localhost:2\n", ["localhost"] * 2),
        ("elsewhere slots=4\n^elsewhere\nlocalhost slots=2\n", ["localhost"] * 2),
        ("localhost cpu=2 // old words\r\n", ["localhost"] * 2),
    ],
)
def test_hostfile(run, tmp_path, text, want):
    (tmp_path / "hosts").write_text(text)
    result = run("-np", len(want), "--hostfile", "hosts", *SHOW)
    assert ranks_of(result) == list(enumerate(want))


def test_missing_hostfile(run):
    result = run("-np", 1, "--hostfile", "nosuch", "true")
    assert result.returncode == 2 and "cannot read nosuch" in result.stderr


@pytest.mark.parametrize(
    "env,count",
    [
        ({"SLURM_JOB_NODELIST": "localhost", "SLURM_TASKS_PER_NODE": "3"}, 3),
        ({"LSB_JOBID": "7", "LSB_MCPU_HOSTS": "localhost 2"}, 2),
    ],
)
def test_batch_system_gives_hosts_and_count(run, env, count):
    assert len(ranks_of(run(*SHOW, env=env))) == count


def test_pbs_nodefile(run, tmp_path):
    (tmp_path / "nodes").write_text("localhost\nlocalhost\n127.0.0.1\n")
    result = run(*SHOW, env={"PBS_NODEFILE": str(tmp_path / "nodes")})
    assert ranks_of(result) == [(0, "localhost"), (1, "localhost"), (2, "127.0.0.1")]


CONFIG = """\
# a whole file
controller: GLOO
params:
  fusion_threshold_mb: 32
  cycle_time_ms: 12.5
  cache_capacity: 2048
  hierarchical_allreduce: true
  hierarchical_allgather: no
  torus_allreduce: off
autotune:
    enabled: True
    log_file: 'it''s.csv'
    warmup_samples: 5
    steps_per_sample: 20
    bayes_opt_max_samples: 50
    gaussian_process_noise: 0.9
timeline:
  filename: "a b.json"   # quoted
  mark_cycles: true
stall_check:
  enabled: false
  warning_time_seconds: 120
  shutdown_time_seconds: 240
library_options:
  mpi_threads_disable: true
  num_nccl_streams: 2
  thread_affinity: 1
  gloo_timeout_seconds: 60
logging:
  level: INFO
  with_timestamp: false
"""

WANT = {
    "HOROVOD_FUSION_THRESHOLD": str(32 << 20),
    "HOROVOD_CYCLE_TIME": "12.5",
    "HOROVOD_CACHE_CAPACITY": "2048",
    "HOROVOD_HIERARCHICAL_ALLREDUCE": "1",
    "HOROVOD_HIERARCHICAL_ALLGATHER": "0",
    "HOROVOD_TORUS_ALLREDUCE": "0",
    "HOROVOD_AUTOTUNE": "1",
    "HOROVOD_AUTOTUNE_LOG": "it's.csv",
    "HOROVOD_AUTOTUNE_WARMUP_SAMPLES": "5",
    "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE": "20",
    "HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES": "50",
    "HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE": "0.9",
    "HOROVOD_TIMELINE": "a b.json",
    "HOROVOD_TIMELINE_MARK_CYCLES": "1",
    "HOROVOD_STALL_CHECK_DISABLE": "1",
    "HOROVOD_STALL_CHECK_TIME_SECONDS": "120",
    "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "240",
    "HOROVOD_MPI_THREADS_DISABLE": "1",
    "HOROVOD_NUM_NCCL_STREAMS": "2",
    "HOROVOD_THREAD_AFFINITY": "1",
    "HOROVOD_GLOO_TIMEOUT_SECONDS": "60",
    "HOROVOD_LOG_LEVEL": "INFO",
    "HOROVOD_LOG_HIDE_TIME": "1",
}


def worker_env(result):
    assert result.returncode == 0, result.stderr
    lines = [line.split(":", 1)[1] for line in result.stdout.splitlines()]
    return dict(line.split("=", 1) for line in lines if "=" in line)


def test_config_file(run, tmp_path):
    (tmp_path / "c.yaml").write_text(CONFIG)
    result = run("-np", 1, "--config-file", "c.yaml", "env")
    env = worker_env(result)
    assert {name: env.get(name) for name in WANT} == WANT
    assert result.stderr == ""


@pytest.mark.parametrize("order", [0, 1])
def test_command_line_wins(run, tmp_path, order):
    (tmp_path / "c.yaml").write_text(CONFIG)
    flags = [["--cycle-time-ms", "7"], ["--config-file", "c.yaml"]]
    env = worker_env(run("-np", 1, *flags[order], *flags[1 - order], "--no-autotune", "env"))
    assert env["HOROVOD_CYCLE_TIME"] == "7.0"
    assert env["HOROVOD_CACHE_CAPACITY"] == "2048"
    assert env["HOROVOD_AUTOTUNE"] == "0"


def test_empty_config_file(run, tmp_path):
    (tmp_path / "c.yaml").write_text("")
    assert run("-np", 1, "--config-file", "c.yaml", "true").returncode == 0


def test_unknown_keys_warn(run, tmp_path):
    (tmp_path / "c.yaml").write_text("logging:\n  hide_timestamp: true\nhosts: a\n")
    result = run("-np", 1, "--config-file", "c.yaml", "true")
    assert result.returncode == 0
    assert "c.yaml:2: unknown key logging.hide_timestamp" in result.stderr
    assert "c.yaml:3: unknown key hosts" in result.stderr


BAD_HOSTFILES = [
    ("", "hosts: no host in it"),
    ("# nothing\n", "hosts: no host in it"),
    ("localhost slots=x\n", "hosts:1: 'slots=x' is not understood"),
    ("\nlocalhost nonsense=1\n", "hosts:2: 'nonsense=1' is not understood"),
    ("localhost slots=4 max-slots=2\n", "hosts:1: slots=4 is over max-slots=2"),
    ("-oProxyCommand=x slots=1\n", "hosts:1: '-oProxyCommand' is not a host name"),
    ("a$b slots=1\n", "hosts:1: 'a$b' is not a host name"),
]
BAD_CONFIG_FILES = [
    ("controller: foo\n", "c.yaml:1: No such controller supported: foo"),
    ("params:\n  cycle_time_ms: fast\n", "c.yaml:2: params.cycle_time_ms must be a number"),
    ("params:\n  cycle_time_ms: '5'\n", "c.yaml:2: params.cycle_time_ms must be a number"),
    ("params:\n\tcycle_time_ms: 5\n", "c.yaml:2: a tab in the indentation"),
    ("params: {cycle_time_ms: [5]}\n", "c.yaml:1: only plain or quoted values"),
    ("params:\n  - 1\n", "c.yaml:2: lists are not understood"),
    ("params:\n  a:\n    b: 1\n", "c.yaml:3: unexpected indentation"),
    ("params:\n  cycle_time_ms: 1\n  cycle_time_ms: 2\n", "c.yaml:3: key is given twice"),
    ("params:\n  cache_capacity: -1\n", "cache_capacity=-1 must be >= 0"),
    ("logging:\n  level: LOUD\n", "c.yaml:2: logging.level must be TRACE"),
    ('timeline:\n  filename: "x\n', "c.yaml:2: quote is not closed"),
    ("nonsense\n", "c.yaml:1: expected a colon behind the key"),
]
BAD_FILES = [("-hostfile", "hosts", *case) for case in BAD_HOSTFILES]
BAD_FILES += [("--config-file", "c.yaml", *case) for case in BAD_CONFIG_FILES]


@pytest.mark.parametrize("option,name,text,message", BAD_FILES)
def test_bad_file(run, tmp_path, option, name, text, message):
    (tmp_path / name).write_text(text)
    result = run("-np", 1, option, name, "true")
    assert result.returncode == 2
    assert message in result.stderr
