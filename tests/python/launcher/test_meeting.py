# SPDX-License-Identifier: Apache-2.0
"""Ranks that do not come to hvd.init(), or die there: the job ends at once and says who."""

import fcntl
import os
import signal
import struct
import termios


def test_death_behind_a_wrapper(run, rank):
    """Rank 1 dies in init; the shell around it goes on, so that no exit tells of it."""
    script = (
        f"case $HOROVOD_RANK in 0) {rank};; "
        f"1) {rank} & echo $! > part; mv part pid; sleep 300;; 2) sleep 300;; esac"
    )
    process, log = run.start_logged("-np", 3, "sh", "-c", script)
    late = "for localhost rank 2: started, has not called init yet"
    run.wait_for(lambda: late in log.read_text(), what=late)
    os.kill(int((run.cwd / "pid").read_text()), signal.SIGKILL)
    assert process.wait(120) == 1  # the others would sleep for minutes
    err = log.read_text()
    assert "rank 1 on localhost has gone while the ranks were meeting" in err
    assert "Stopped because of it: ranks 0,2." in err


def test_rank_that_never_calls_init(run, rank):
    script = f"if [ $HOROVOD_RANK = 1 ]; then exit 0; fi; {rank}"
    result = run("-np", 2, "sh", "-c", script)
    assert result.returncode == 1
    assert "rank 1 on localhost ended with exit code 0 and never called hvd.init()" in result.stderr


def test_ladder_names_the_rank_that_is_late(run, rank):
    script = "if [ $HOROVOD_RANK = 1 ]; then while [ ! -e told ]; do sleep 0.1; done; fi; " + rank
    process, log = run.start_logged("-np", 2, "sh", "-c", script)
    late = "for localhost rank 1: started, has not called init yet"
    run.wait_for(lambda: late in log.read_text(), what=late)
    (run.cwd / "told").touch()
    assert process.wait(120) == 0, log.read_text()


def test_rank_that_is_too_late_is_named_with_its_host(run, rank):
    """The others give up; the report is about the rank that they waited for, not about them."""
    script = f"if [ $HOROVOD_RANK = 1 ]; then echo still loading; sleep 300; fi; {rank}"
    env = {"HOROVOD_GLOO_TIMEOUT_SECONDS": "2"}
    result = run("-np", 3, "sh", "-c", script, env=env)
    assert result.returncode != 0
    report = result.stderr[result.stderr.index("horovodrun: rank 1 on localhost did not exit") :]
    assert "hvd.init() waited 2 s (HOROVOD_GLOO_TIMEOUT_SECONDS) for all ranks" in report
    assert "1 of 3 ranks have not arrived: 1" in report
    assert "Check the output of the missing ranks" in report
    assert "(raise the limit)." in report  # no address: there is no network on one machine
    assert "still loading" in report


def test_two_programs_one_after_the_other(run, rank):
    result = run("-np", 2, "sh", "-c", f"{rank} && {rank} && echo both")
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("both") == 2


# Rank 1 fails when rank 0 is ready to say very much about being told to stop.
TALKATIVE = (
    "if [ $HOROVOD_RANK = 1 ]; then while [ ! -e ready ]; do sleep 0.05; done; "
    "echo cause >&2; exit 3; fi; "
    "text=$(i=0; while [ $i -lt 2000 ]; do "
    "echo late $i ................................; i=$((i+1)); done); "
    "trap 'echo \"$text\"; exit 0' TERM; touch ready; while :; do sleep 0.05; done"
)


def test_report_is_last_and_once(run, tmp_path):
    """What the others still say when told to stop comes before the report, however much it is."""
    with (tmp_path / "log").open("w") as log:
        process = run.start("-np", 2, "sh", "-c", TALKATIVE, stdout=log, stderr=log)
        assert process.wait(120) == 3
    lines = (tmp_path / "log").read_text().splitlines()
    begin = next(i for i, line in enumerate(lines) if line.startswith("horovodrun: rank 1"))
    assert sum("late" in line for line in lines[:begin]) == 2000
    assert not any("late" in line for line in lines[begin:])
    assert sum("exited with code 3" in line for line in lines) == 1
    assert lines[-1] == "Exit code: 3"


def test_report_is_last_through_a_slow_pipe(run):
    read, write = os.pipe()
    full = fcntl.fcntl(write, fcntl.F_GETPIPE_SZ)
    process = run.start("-np", 2, "sh", "-c", TALKATIVE, stdout=write, stderr=write)
    os.close(write)

    def is_full():
        waiting = struct.unpack("i", fcntl.ioctl(read, termios.FIONREAD, b"\0" * 4))[0]
        return waiting > full - 4096

    run.wait_for(is_full, what="full pipe")
    with os.fdopen(read) as pipe:
        lines = pipe.read().splitlines()
    assert process.wait(120) == 3
    assert lines[-1] == "Exit code: 3"
    assert sum("late" in line for line in lines) == 2000
