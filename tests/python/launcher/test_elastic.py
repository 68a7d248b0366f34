# SPDX-License-Identifier: Apache-2.0
"""Elastic jobs of the real horovodrun, here and behind a real sshd.

tests/mp/test_mp_elastic.c has what needs workers that compute together.
"""


def test_environment(run):
    # The first worker that exits with 0 finishes the job, also for one that has not started yet.
    show = "echo $HOROVOD_WORKER $HOROVOD_HOSTNAME $HOROVOD_ELASTIC $HOROVOD_LOCAL_RANK; sleep 1"
    result = run("-np", 2, "--min-np", 1, "-H", "localhost:1,127.0.0.1:1", "sh", "-c", show)
    assert result.returncode == 0, result.stderr
    assert sorted(result.stdout.splitlines()) == [
        "[0]<stdout>:0.0 localhost 1 0",
        "[1]<stdout>:1.0 127.0.0.1 1 0",
    ]


def test_script_that_never_runs(run):
    result = run("-np", 2, "--min-np", 1, "sh", "-c", "echo why >&2; exit 9")
    assert result.returncode == 9
    assert "No worker has come as far as hvd.init()" in result.stderr
    assert "exited with code 9" in result.stderr and "<stderr> why" in result.stderr


def test_files_of_workers(run):
    script = "echo $HOROVOD_WORKER; case $HOROVOD_WORKER in 0.0) exit 3;; 0.1) sleep 1;; esac"
    result = run("-np", 2, "--min-np", 1, "--output-filename", "out", "sh", "-c", script)
    assert result.returncode == 3, result.stderr
    assert (run.cwd / "out/rank.0/stdout").read_text() == "[0]<stdout>:0.0\n"
    assert (run.cwd / "out/rank.1/stdout").read_text() == "[1]<stdout>:0.1\n"


def test_hosts_behind_ssh(run, sshd):
    run.env.update(sshd.env())
    show = "echo $HOROVOD_WORKER $HOROVOD_HOSTNAME $HOROVOD_ELASTIC; sleep 1"
    hosts = f"localhost:1,{sshd.host}:2"
    result = run("-np", 3, "--min-np", 1, "-H", hosts, *sshd.options, "sh", "-c", show)
    assert result.returncode == 0, result.stderr
    words = [line.split(":", 1)[1] for line in result.stdout.splitlines()]
    assert "0.0 localhost 1" in words, result.stdout
    assert set(words) <= {"0.0 localhost 1", f"1.0 {sshd.host} 1", f"1.1 {sshd.host} 1"}


def test_host_appears_behind_ssh(run, sshd):
    run.env.update(sshd.env())
    hosts = run.cwd / "hosts"
    hosts.write_text("localhost:1\n")
    script = "touch up.$HOROVOD_WORKER; until test -e end; do sleep 0.05; done"
    job = run.start(
        *("-np", 1, "--min-np", 1, "--host-discovery-script", f"cat {hosts}"),
        *(*sshd.options, "sh", "-c", script),
    )
    run.wait_for((run.cwd / "up.0.0").exists, what="the first worker")
    hosts.write_text(f"localhost:1\n{sshd.host}:1\n")
    run.wait_for((run.cwd / "up.1.0").exists, what="the worker behind ssh")
    (run.cwd / "end").touch()
    assert job.wait(60) == 0, job.stderr.read()


def test_signal_ends_it(run):
    job = run.start("-np", 2, "--min-np", 1, "sh", "-c", "touch up.$HOROVOD_WORKER; sleep 300")
    run.wait_for((run.cwd / "up.0.1").exists, what="a worker")
    job.terminate()
    assert job.wait(60) == 128 + 15
