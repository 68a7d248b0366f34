# SPDX-License-Identifier: Apache-2.0
"""Ranks on this machine: placement, environment, output, failures, and what is left behind."""

import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest
from shells import STUBBORN, UP


def by_rank(text):
    found = {}
    for line in text.splitlines():
        match = re.fullmatch(r"\[(\d+)\]<(stdout|stderr)>:(.*)", line)
        assert match, f"unexpected line {line!r}"
        found.setdefault(int(match[1]), []).append(match[3])
    return found


def test_np_caps_the_slots(run):
    result = run("-np", 2, "-H", "localhost:4", "sh", "-c", "echo $HOROVOD_SIZE")
    assert by_rank(result.stdout) == {0: ["2"], 1: ["2"]}


def test_place_of_every_rank(run):
    names = ["HOSTNAME", "RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE"]
    show = 'echo "' + " ".join(f"$HOROVOD_{n}" for n in names) + '"'
    result = run("-np", 4, "-H", "localhost:1,127.0.0.1:4", "sh", "-c", show)
    assert by_rank(result.stdout) == {
        0: ["localhost 0 4 0 1 0 2"],
        1: ["127.0.0.1 1 4 0 3 1 2"],
        2: ["127.0.0.1 2 4 1 3 0 1"],
        3: ["127.0.0.1 3 4 2 3 0 1"],
    }


def test_environment_of_a_local_rank(run):
    extra = {
        "CUDA_VISIBLE_DEVICES": "1",
        "OLDPWD": "/x",
        "odd.name": "y",
        "HOROVOD_RANK": "77",
        "HOROVOD_KEY": "00" * 32,
        "HOROVOD_KEY_FILE": "/nosuch",
    }
    result = run("-np", 1, "env", env=extra)
    env = dict(line.split("=", 1) for line in by_rank(result.stdout)[0] if "=" in line)
    assert env["CUDA_VISIBLE_DEVICES"] == "1"
    assert env["OLDPWD"] == "/x"
    assert env["odd.name"] == "y"
    assert env["HOROVOD_RANK"] == "0"
    assert env["PYTHONUNBUFFERED"] == "1"
    assert env["GLIBC_TUNABLES"] == "glibc.malloc.hugetlb=1"
    assert env["HOROVOD_CONTROLLER"] == env["HOROVOD_CPU_OPERATIONS"] == "gloo"
    assert env["HOROVOD_GLOO_RENDEZVOUS_ADDR"] == "127.0.0.1"
    assert int(env["HOROVOD_GLOO_RENDEZVOUS_PORT"]) > 0
    assert env["HOROVOD_RENDEZVOUS"].startswith("unix:")
    assert int(env["HOROVOD_KEY_FD"]) > 9
    assert "HOROVOD_KEY" not in env
    assert env["HOROVOD_KEY_FILE"] != "/nosuch" and not Path(env["HOROVOD_KEY_FILE"]).exists()
    assert "HOROVOD_GLOO_IFACE" not in env


@pytest.mark.parametrize("value", ["", "glibc.malloc.check=0"])
def test_tunables_of_the_user_stay(run, value):
    result = run("-np", 1, "env", env={"GLIBC_TUNABLES": value})
    assert f"GLIBC_TUNABLES={value}" in by_rank(result.stdout)[0]


def test_big_environment(run):
    result = run("-np", 2, "sh", "-c", "echo ${#BIG}", env={"BIG": "x" * 120000})
    assert by_rank(result.stdout) == {0: ["120000"], 1: ["120000"]}


def test_unknown_interface_names_those_that_exist(run):
    result = run("-np", 1, "--network-interfaces", "nosuch0", "true")
    assert result.returncode == 1
    assert "nosuch0" in result.stderr and "lo" in result.stderr


def test_given_interface_is_used(run):
    result = run("-np", 1, "--network-interface", "lo", "sh", "-c", "echo $HOROVOD_GLOO_IFACE")
    assert by_rank(result.stdout) == {0: ["lo"]}


def test_streams_and_prefixes(run):
    result = run("-np", 2, "sh", "-c", "echo out; echo err >&2")
    assert by_rank(result.stdout) == {0: ["out"], 1: ["out"]}
    assert by_rank(result.stderr) == {0: ["err"], 1: ["err"]}


def test_carriage_returns_and_partial_lines(run):
    result = run("-np", 1, "printf", r"10%%\r20%%\rdone\r\nrest", text=False)
    prefix = b"[0]<stdout>:"
    lines = [b"10%\r", b"20%\r", b"done\r\n", b"rest"]
    assert result.stdout == b"".join(prefix + line for line in lines)


def test_timestamps(run):
    for flag in ("--prefix-output-with-timestamp", "-prefix-timestamp"):
        result = run("-np", 1, flag, "echo", "x")
        pattern = r"\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4}\[0\]<stdout>:x\n"
        assert re.fullmatch(pattern, result.stdout)


def test_lines_stay_whole(run):
    script = "for i in $(seq 2000); do echo xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx$i; done"
    result = run("-np", 4, "sh", "-c", script)
    ranks = by_rank(result.stdout)
    want = ["x" * 42 + str(i) for i in range(1, 2001)]
    assert ranks == dict.fromkeys(range(4), want)


def test_much_output_through_a_slow_reader(run):
    process = run.start("-np", 2, "sh", "-c", "head -c 3000000 /dev/zero | tr '\\0' 'x'; echo")
    time.sleep(0.5)  # let every buffer on the way fill up
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    assert out.count("x") == 6000000


def test_output_files(run, tmp_path):
    for count, names in ((1, ["rank.0"]), (11, [f"rank.{i:02}" for i in range(11)])):
        folder = tmp_path / f"deep/out{count}"
        result = run("-np", count, "--output-filename", folder, "sh", "-c", "echo o; echo e >&2")
        assert result.returncode == 0
        assert sorted(p.name for p in folder.iterdir()) == names
        for rank, name in enumerate(names):
            assert (folder / name / "stdout").read_text() == f"[{rank}]<stdout>:o\n"
            assert (folder / name / "stderr").read_text() == f"[{rank}]<stderr>:e\n"
        assert len(result.stdout.splitlines()) == count


def test_exit_code_of_the_first_failure(run):
    result = run("-np", 3, "sh", "-c", "test $HOROVOD_RANK = 1 && exit 3; sleep 600")
    assert result.returncode == 3
    assert "rank 1 on localhost exited with code 3" in result.stderr
    assert "Stopped because of it: ranks 0,2." in result.stderr
    assert result.stderr.endswith("Process name: 1\nExit code: 3\n")


def test_signal_of_the_first_failure(run):
    result = run("-np", 2, "sh", "-c", "test $HOROVOD_RANK = 0 && kill -SEGV $$; sleep 600")
    assert result.returncode == 128 + signal.SIGSEGV
    assert "rank 0 on localhost was killed by signal 11 (SIGSEGV)" in result.stderr


def test_last_lines_come_last_and_once(run):
    script = (
        "if test $HOROVOD_RANK = 1; then echo the cause >&2; exit 5; fi;"
        "trap 'echo noise after the fact >&2; exit 9' TERM; sleep 600 & wait"
    )
    result = run("-np", 3, "sh", "-c", script)
    assert result.returncode == 5
    report = result.stderr[result.stderr.index("horovodrun: rank") :]
    assert "    <stderr> the cause\n" in report
    assert "noise" not in report
    assert result.stderr.count("horovodrun: rank") == 1
    assert "Traceback" not in result.stderr


def test_early_finish_is_named(run):
    script = (
        "if test $HOROVOD_RANK = 0; then echo $$ > part; mv part pid; exit 0; fi; "
        "while ! test -e pid; do sleep 0.05; done; "
        "while kill -0 $(cat pid) 2>/dev/null; do sleep 0.05; done; "
        "test $HOROVOD_RANK = 1 && exit 4; sleep 600"
    )
    result = run("-np", 3, "sh", "-c", script)
    assert result.returncode == 4
    assert "rank 0 had finished normally" in result.stderr


def test_unknown_command(run):
    result = run("-np", 2, "nosuchcmd")
    assert result.returncode == 127
    assert "nosuchcmd" in result.stderr and "No such file" in result.stderr


def test_command_that_may_not_be_executed(run, tmp_path):
    (tmp_path / "plain").write_text("x")
    assert run("-np", 1, "./plain").returncode == 126


def test_script_without_interpreter_line(run, tmp_path):
    (tmp_path / "s").write_text("echo hello $1\n")
    (tmp_path / "s").chmod(0o755)
    assert run("-np", 1, "./s", "you").stdout == "[0]<stdout>:hello you\n"


def started(run, *args, count=2):
    """A job whose ranks have all made a file; returns the launcher."""
    process = run.start("-np", count, *args)
    files = [run.cwd / f"up.{i}" for i in range(count)]
    deadline = time.monotonic() + 60
    while not all(f.exists() for f in files):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    return process


@pytest.mark.parametrize(
    "number,code", [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_signal_to_the_launcher(run, number, code):
    process = started(run, "sh", "-c", UP + "sleep 300")
    process.send_signal(number)
    _, err = process.communicate(timeout=120)
    assert process.returncode == code
    assert f"stopped by {number.name}" in err
    assert run.wait_gone() == []


def test_stubborn_ranks_and_grandchildren_after_ctrl_c(run):
    process = started(run, "sh", "-c", STUBBORN)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=120)
    assert process.returncode == 130
    assert run.wait_gone() == []


def test_second_ctrl_c_does_not_wait(run):
    process = started(run, "sh", "-c", STUBBORN)
    process.send_signal(signal.SIGINT)
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=120)
    assert process.returncode == 130
    assert run.wait_gone() == []


def test_stubborn_grandchildren_after_a_failure(run):
    script = (
        "if test $HOROVOD_RANK = 0; then while ! test -e up.1; do sleep 0.05; done; exit 6; fi; "
        + STUBBORN
    )
    result = run("-np", 2, "sh", "-c", script)
    assert result.returncode == 6
    assert run.wait_gone() == []


def test_kill_9_of_the_launcher_leaves_nothing(run):
    process = started(run, "sh", "-c", STUBBORN)
    process.kill()
    process.wait()
    assert run.wait_gone() == []


def test_kill_9_of_the_agent_leaves_no_key_file(run):
    script = 'echo "$HOROVOD_KEY_FILE" > key.part; mv key.part key; sleep 300'
    process = run.start("-np", 1, "sh", "-c", script)
    deadline = time.monotonic() + 60
    while not (run.cwd / "key").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    path = Path((run.cwd / "key").read_text().strip())
    assert path.exists()
    agent = next(
        p for p in run.processes() if b"--local-agent" in Path(f"/proc/{p}/cmdline").read_bytes()
    )
    os.kill(agent, signal.SIGKILL)
    process.communicate(timeout=120)
    assert not path.exists() and not path.parent.exists()


def test_kill_9_of_the_agent_leaves_nothing(run):
    process = started(run, "sh", "-c", STUBBORN)
    agents = [
        p for p in run.processes() if b"--local-agent" in Path(f"/proc/{p}/cmdline").read_bytes()
    ]
    assert len(agents) == 1
    os.kill(agents[0], signal.SIGKILL)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 1 and "lost" in err
    assert run.wait_gone() == []


def test_background_process_of_a_finished_rank_is_ended(run):
    result = run("-np", 2, "sh", "-c", "setsid sleep 300 >/dev/null 2>&1 & true")
    assert result.returncode == 0
    assert run.wait_gone() == []


def test_closed_stdout_ends_the_job(run):
    process = run.start("-np", 2, "sh", "-c", "while :; do echo x; sleep 0.05; done")
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(20) == 141
    assert run.wait_gone() == []
    process.stderr.close()


def test_closed_terminal(run):
    """script(1) gives a terminal; killing it closes that terminal, as a lost connection does."""
    command = f"{run.path} -np 2 sh -c '{UP}sleep 300'"
    process = subprocess.Popen(
        ["script", "-qfc", command, "/dev/null"],
        env=run.env,
        cwd=run.cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    deadline = time.monotonic() + 60
    while not (run.cwd / "up.1").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.kill()
    process.wait()
    assert run.wait_gone() == []


def test_stopped_worker_is_ended_too(run):
    process = started(run, "sh", "-c", UP + "kill -STOP $$; sleep 300")
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=120)
    assert process.returncode == 143


def states(run, name):
    """Process states of the workers' own program."""
    found = []
    for pid in run.processes():
        try:
            text = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            continue
        if f"({name})" in text:
            found.append(text.rsplit(")", 1)[1].split()[0])
    return found


def test_ctrl_z_holds_the_whole_job(run):
    process = started(run, "sh", "-c", UP + "exec sleep 300")

    def wait_states(wanted):
        deadline = time.monotonic() + 60
        while states(run, "sleep") != wanted:
            assert time.monotonic() < deadline, states(run, "sleep")
            time.sleep(0.02)

    def wait_launcher(state):
        deadline = time.monotonic() + 60
        while Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != state:
            assert time.monotonic() < deadline
            time.sleep(0.02)

    wait_states(["S", "S"])
    process.send_signal(signal.SIGTSTP)
    wait_states(["T", "T"])
    wait_launcher("T")  # a shell, too, continues a job only after it has seen it stop
    process.send_signal(signal.SIGCONT)
    wait_states(["S", "S"])
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=120)
    assert process.returncode == 143


def test_many_files_limit_is_kept_for_workers(run):
    result = run("-np", 1, "sh", "-c", "ulimit -n", preexec_fn=lambda: limit_files(256))
    assert by_rank(result.stdout) == {0: ["256"]}


def limit_files(soft):
    import resource

    resource.setrlimit(
        resource.RLIMIT_NOFILE, (soft, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    )


def test_more_ranks_than_the_soft_limit_on_files(run):
    result = run("-np", 40, "echo", "x", preexec_fn=lambda: limit_files(64))
    assert result.returncode == 0, result.stderr
    assert len(result.stdout.splitlines()) == 40


def test_closed_stdio(run):
    """With stdin, stdout and stderr closed nothing of ours takes their numbers."""
    command = f"{run.path} -np 2 sh -c '{UP} echo x; echo y >&2' <&- >&- 2>&-"
    result = subprocess.run(["sh", "-c", command], env=run.env, cwd=run.cwd, timeout=60)
    assert result.returncode == 0
    assert (run.cwd / "up.1").exists()


def test_64_ranks(run):
    result = run("-np", 64, "sh", "-c", "echo $HOROVOD_RANK")
    assert result.returncode == 0
    assert by_rank(result.stdout) == {r: [str(r)] for r in range(64)}


def test_64_ranks_meet(run, rank):
    if not rank.endswith("train"):
        pytest.skip("64 interpreters are too many for a small machine")
    result = run("-np", 64, rank, timeout=240)
    assert result.returncode == 0, result.stderr[-2000:]
    assert "64 ranks: accuracy" in result.stdout and "weights equal on all ranks" in result.stdout


def test_overhead_is_printed(run, capsys):
    best = 1e9
    for _ in range(5):
        start = time.perf_counter()
        assert run("-np", 2, "true").returncode == 0
        best = min(best, time.perf_counter() - start)
    with capsys.disabled():
        print(f"\nhorovodrun -np 2 true: {best * 1e3:.1f} ms")
