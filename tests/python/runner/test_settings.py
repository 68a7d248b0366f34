# SPDX-License-Identifier: Apache-2.0
"""The Python face of the table of settings: constants, options, config file and variables.

The same options go through the native horovodrun, which must make the same variables of them.
"""

import argparse
import os
import subprocess
from pathlib import Path

import pytest
from horovod.runner import launch, options
from horovod.runner.common.util import config_parser
from horovod.runner.launcher import find_horovodrun

ROOT = Path(__file__).resolve().parents[3]

# The names that programs written for 0.28.1 import.
CONSTANTS = [
    "FUSION_THRESHOLD",
    "CYCLE_TIME",
    "CACHE_CAPACITY",
    "HIERARCHICAL_ALLREDUCE",
    "HIERARCHICAL_ALLGATHER",
    "TORUS_ALLREDUCE",
    "AUTOTUNE",
    "AUTOTUNE_LOG",
    "AUTOTUNE_WARMUP_SAMPLES",
    "AUTOTUNE_STEPS_PER_SAMPLE",
    "AUTOTUNE_BAYES_OPT_MAX_SAMPLES",
    "AUTOTUNE_GAUSSIAN_PROCESS_NOISE",
    "TIMELINE",
    "TIMELINE_MARK_CYCLES",
    "STALL_CHECK_DISABLE",
    "STALL_CHECK_TIME_SECONDS",
    "STALL_SHUTDOWN_TIME_SECONDS",
    "MPI_THREADS_DISABLE",
    "NUM_NCCL_STREAMS",
    "THREAD_AFFINITY",
    "GLOO_TIMEOUT_SECONDS",
    "LOG_LEVEL",
    "LOG_HIDE_TIME",
]


def sample(row):
    """A value for the option, as typed."""
    if row["choices"]:
        return row["choices"][1]
    return {"float": "0.5", "text": "x"}.get(row["option_type"], str(max(row["lowest"], 2)))


def needed(row):
    """Options without which this one is not passed on."""
    other = options.by_name(row["needs"]) if row["needs"] else None
    if other is None:
        return []
    return [other["flags"][0]["names"][0], *(["x"] if other["metavar"] else [])]


def command_lines():
    for row in options.passed_on():
        for flag in row["flags"]:
            words = [flag["names"][-1], *([sample(row)] if row["metavar"] else [])]
            yield row, flag, [*needed(row), *words]


def python_variables(words):
    args = launch.parse_args(["-np", "1", *words])
    return config_parser.set_env_from_args({}, args)


def native_variables(words, folder):
    kept = {n: v for n, v in os.environ.items() if not n.startswith("HOROVOD_")}
    result = subprocess.run(
        [find_horovodrun(), "-np", "1", *words, "env"],
        env=kept,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert result.returncode == 0, result.stderr
    lines = [line.split(":", 1)[1] for line in result.stdout.splitlines()]
    return dict(line.split("=", 1) for line in lines if "=" in line)


def test_constants():
    for word in CONSTANTS:
        assert getattr(config_parser, f"HOROVOD_{word}") == f"HOROVOD_{word}"
    for row in options.rows():
        if row["name"]:
            assert getattr(config_parser, row["name"]) == row["name"]
            assert row["name"] in dir(config_parser)
    assert config_parser.NCCL_IB_DISABLE == "NCCL_IB_DISABLE"
    assert config_parser.LOG_LEVELS == ["TRACE", "DEBUG", "INFO", "WARNING", "ERROR", "FATAL"]
    for name in ("HOROVOD_NOSUCH", "NOSUCH", "_nosuch"):
        assert not hasattr(config_parser, name)
    with pytest.raises(ImportError):
        from horovod.runner.common.util.config_parser import HOROVOD_NOSUCH  # noqa: F401


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_options_make_the_variables_of_the_native_launcher(tmp_path):
    """In one run the first flag of every option, then the second, and so on."""
    lines = list(command_lines())
    assert len(lines) > 30
    for row, _, words in lines:
        assert row["name"] in python_variables(words), words
    for turn in range(max(len(row["flags"]) for row, _, _ in lines)):
        chosen = [more for row, flag, more in lines if row["flags"][turn : turn + 1] == [flag]]
        words = [word for more in chosen for word in more]
        ours, native = python_variables(words), native_variables(words, tmp_path)
        assert len(ours) > 0 and ours == {name: native.get(name) for name in ours}


def test_file_and_limits():
    for row in options.passed_on():
        args = argparse.Namespace(**launch.default_args())
        value = True if options.is_switch(row) else 2
        config = {row["section"]: {row["key"]: value}}
        config_parser.set_args_from_config(args, config, set())
        assert getattr(args, row["dest"]) == (value != row["file_inverted"] if value is True else 2)
        config_parser.set_args_from_config(args, {row["section"]: {row["key"]: 3}}, {row["dest"]})
        assert getattr(args, row["dest"]) != 3
        if row["option_type"] in ("int", "float"):
            setattr(args, row["dest"], options.lowest(row) - 1)
            with pytest.raises(ValueError, match=f"^{row['dest']}=.* must be "):
                config_parser.validate_config_args(args)


def test_settings_are_documented():
    page = (ROOT / "docs/configuration.md").read_text()
    assert [r["name"] for r in options.rows() if r["name"] and f"`{r['name']}`" not in page] == []


def test_native_launcher_prints_the_settings_of_the_library():
    printed = subprocess.run(
        [find_horovodrun(), "--print-config"], capture_output=True, text=True, check=True
    ).stdout
    shown = {line.split("=")[0] for line in printed.splitlines() if line.startswith("HOROVOD_")}
    read = {r["name"] for r in options.rows() if r["name"] and r["scope"] in ("job", "rank")}
    assert shown == read


def test_an_added_row_appears(monkeypatch):
    """Nothing in Python knows a setting by itself."""
    like = {row["id"]: row for row in options.rows()}
    rows = (
        *options.rows(),
        {
            **like["cache_capacity"],
            "id": "added",
            "name": "HOROVOD_ADDED",
            "dest": "added_number",
            "section": "added",
            "key": "number",
            "flags": [{**like["cache_capacity"]["flags"][0], "names": ["--added-number"]}],
        },
    )
    monkeypatch.setattr(options, "rows", lambda: rows)
    from horovod.runner.common.util.config_parser import HOROVOD_ADDED

    assert HOROVOD_ADDED == "HOROVOD_ADDED"
    assert "added_number" in launch.default_args()
    assert python_variables(["--added-number", "7"]) == {"HOROVOD_ADDED": "7"}
    args = argparse.Namespace(**launch.default_args())
    config_parser.set_args_from_config(args, {"added": {"number": 8}}, set())
    assert config_parser.set_env_from_args({}, args) == {"HOROVOD_ADDED": "8"}
    with pytest.raises(ValueError, match="^added_number=-1 must be >= 0$"):
        launch.parse_args(["-np", "1", "--added-number", "-1"])
