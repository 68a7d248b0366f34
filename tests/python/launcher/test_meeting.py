# SPDX-License-Identifier: Apache-2.0
"""Ranks that do not come to hvd.init(), or die there: the job ends at once and says who."""

import os
import time


def timed(run, *args, **kwargs):
    begin = time.monotonic()
    result = run(*args, **kwargs)
    return result, time.monotonic() - begin


def test_death_behind_a_wrapper(run, rank):
    """Rank 1 dies in init; the shell around it goes on, so that no exit tells of it."""
    script = (
        f"case $HOROVOD_RANK in 0) {rank};; "
        f"1) {rank} & p=$!; sleep 2; kill -9 $p; sleep 300;; 2) sleep 300;; esac"
    )
    result, seconds = timed(run, "-np", 3, "sh", "-c", script)
    assert result.returncode == 1
    assert "rank 1 on localhost has gone while the ranks were meeting" in result.stderr
    assert "Stopped because of it: rank 0,2." in result.stderr
    assert seconds < 2 + 5


def test_rank_that_never_calls_init(run, rank):
    script = f"if [ $HOROVOD_RANK = 1 ]; then sleep 1; exit 0; fi; {rank}"
    result, seconds = timed(run, "-np", 2, "sh", "-c", script)
    assert result.returncode == 1
    assert "rank 1 on localhost ended with exit code 0 and never called hvd.init()" in result.stderr
    assert seconds < 1 + 5


def test_ladder_names_the_rank_that_is_late(run, rank):
    script = f"if [ $HOROVOD_RANK = 1 ]; then sleep 7; fi; {rank}"
    result = run("-np", 2, "sh", "-c", script)
    assert result.returncode == 0, result.stderr
    assert "for localhost rank 1: started, has not called init yet" in result.stderr


def test_two_programs_one_after_the_other(run, rank):
    result = run("-np", 2, "sh", "-c", f"{rank} && {rank} && echo both")
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("both") == 2


def test_report_is_last_and_once(run, tmp_path):
    """What the others still say when told to stop comes before the report, however much it is."""
    script = (
        "if [ $HOROVOD_RANK = 1 ]; then sleep 0.5; echo cause >&2; exit 3; fi; "
        "trap 'i=0; while [ $i -lt 2000 ]; do echo late $i ................................; "
        "i=$((i+1)); done; exit 0' TERM; while :; do sleep 0.05; done"
    )
    with (tmp_path / "log").open("w") as log:
        process = run.start("-np", 2, "sh", "-c", script, stdout=log, stderr=log)
        assert process.wait(30) == 3
    lines = (tmp_path / "log").read_text().splitlines()
    begin = next(i for i, line in enumerate(lines) if line.startswith("horovodrun: rank 1"))
    assert not any("late" in line for line in lines[begin:])
    assert sum("exited with code 3" in line for line in lines) == 1
    assert lines[-1] == "Exit code: 3"


def test_report_is_last_through_a_slow_pipe(run):
    script = (
        "if [ $HOROVOD_RANK = 1 ]; then sleep 0.5; exit 3; fi; "
        "trap 'i=0; while [ $i -lt 2000 ]; do echo late $i ................................; "
        "i=$((i+1)); done; exit 0' TERM; while :; do sleep 0.05; done"
    )
    read, write = os.pipe()
    process = run.start("-np", 2, "sh", "-c", script, stdout=write, stderr=write)
    os.close(write)
    time.sleep(1.5)
    with os.fdopen(read) as pipe:
        lines = pipe.read().splitlines()
    assert process.wait(30) == 3
    assert lines[-1] == "Exit code: 3"
    assert sum("late" in line for line in lines) == 2000
