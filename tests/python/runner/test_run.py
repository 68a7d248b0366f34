# SPDX-License-Identifier: Apache-2.0
"""horovod.run(): results by rank, failures with their rank and traceback, nothing left behind."""

import io
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import horovod
import pytest
from horovod.runner import RankError


def where():
    return int(os.environ["HOROVOD_RANK"]), int(os.environ["HOROVOD_SIZE"])


def test_results_in_order_of_rank():
    def call(a, b=0):
        rank, size = where()
        return rank, size, a + b

    assert horovod.run(call, (3,), {"b": 4}, num_proc=3) == [(0, 3, 7), (1, 3, 7), (2, 3, 7)]


def test_ranks_reach_each_other():
    def call():
        from horovod.common.library import native

        native.init(None, [])
        answer = native.rank(), native.size(), native.local_size()
        native.shutdown()
        return answer

    assert horovod.run(call, num_proc=2) == [(0, 2, 2), (1, 2, 2)]


def test_more_slots_than_processes():
    assert horovod.run(where, num_proc=2, hosts="localhost:4") == [(0, 2), (1, 2)]


def test_large_result():
    result = horovod.run(lambda: bytes(70 << 20), num_proc=1)
    assert len(result[0]) == 70 << 20


def test_no_knob_is_set_by_itself():
    def call():
        return [n for n in os.environ if n in ("HOROVOD_CYCLE_TIME", "HOROVOD_CACHE_CAPACITY")]

    assert horovod.run(call, num_proc=1) == [[]]


def test_exception_names_rank_and_keeps_traceback():
    def call():
        if where()[0] == 1:
            raise ValueError("bad luck")
        time.sleep(60)

    with pytest.raises(RuntimeError, match="Process name: 1\nExit code: 1\n") as caught:
        horovod.run(call, num_proc=2)
    error = caught.value
    assert isinstance(error, RankError)
    assert (error.rank, error.exit_code) == (1, 1)
    assert isinstance(error.__cause__, ValueError)
    assert "in call" in error.traceback and "bad luck" in str(error)


def test_exception_that_cannot_be_pickled():
    def call():
        class Odd(Exception):
            def __init__(self, a, b):
                super().__init__(f"{a} and {b}")
                self.lock = threading.Lock()

        raise Odd(1, 2)

    with pytest.raises(RankError, match="raised Odd:(.|\n)*1 and 2") as caught:
        horovod.run(call, num_proc=1)
    assert caught.value.__cause__ is None


def test_result_that_cannot_be_pickled():
    with pytest.raises(RankError, match="cannot pickle|can't pickle"):
        horovod.run(lambda: threading.Lock(), num_proc=1)


def test_exit_code_of_the_function_is_kept():
    with pytest.raises(RuntimeError, match="Exit code: 5"):
        horovod.run(lambda: sys.exit(5), num_proc=1)


def test_killed_rank(capsys):
    with pytest.raises(RuntimeError, match="signal 9") as caught:
        horovod.run(lambda: os.kill(os.getpid(), signal.SIGKILL), num_proc=1)
    assert caught.value.exit_code == 137


def test_output_goes_to_the_current_streams(monkeypatch):
    out = io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    horovod.run(lambda: print("grüße"), num_proc=1)
    assert "[0]<stdout>:grüße\n" in out.getvalue()


def test_other_thread():
    results = []
    handlers = [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)]
    thread = threading.Thread(target=lambda: results.append(horovod.run(where, num_proc=2)))
    thread.start()
    thread.join(60)
    assert results == [[(0, 2), (1, 2)]]
    assert handlers == [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)]


def test_script_without_main_guard(tmp_path):
    script = tmp_path / "plain.py"
    script.write_text(
        "import horovod\nstate = 5\ndef f(x):\n    return x + state\n"
        "print(horovod.run(f, (1,), num_proc=2))\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=300)
    assert done.stdout.strip() == "[6, 6]", done.stderr


def test_module_beside_the_caller(tmp_path, monkeypatch):
    (tmp_path / "beside.py").write_text("def f():\n    return 'found'\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import beside

    assert horovod.run(beside.f, num_proc=1) == ["found"]


def test_environment():
    env = {**os.environ, "SOME_VALUE": "a b"}
    assert horovod.run(lambda: os.environ["SOME_VALUE"], num_proc=1, env=env) == ["a b"]


def test_temporary_folder_is_private_and_goes(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def call():
        folder = Path(sys.argv[1])
        return folder.stat().st_mode & 0o777, [p.stat().st_mode & 0o777 for p in folder.iterdir()]

    assert horovod.run(call, num_proc=1) == [(0o700, [0o600])]
    assert list(tmp_path.iterdir()) == []


def test_conflicting_arguments():
    with pytest.raises(ValueError, match="^Argument hosts and hostfile only allow one provided.$"):
        horovod.run(where, hosts="a:1", hostfile="b")
    with pytest.raises(ValueError, match="^Argument use_gloo and use_mpi only allow one set True"):
        horovod.run(where, use_gloo=True, use_mpi=True)


def test_hosts_that_cannot_be():
    with pytest.raises(ValueError, match="^Invalid host input, please make sure it has format as"):
        horovod.run(where, hosts="localhost")
    text = r"^Requested more processes \(3\) than there are available slots \(2\)$"
    with pytest.raises(ValueError, match=text):
        horovod.run(where, num_proc=3, hosts="localhost:2")
    with pytest.raises(ValueError, match="num_proc is 0"):
        horovod.run(where, num_proc=0)


def test_old_names_warn():
    with pytest.warns(DeprecationWarning, match="^np is deprecated, use num_proc instead$"):
        assert len(horovod.run(where, np=2)) == 2
    text = "^network_interface is deprecated, use network_interfaces instead$"
    with pytest.warns(DeprecationWarning, match=text):
        assert len(horovod.run(where, network_interface="lo")) == 1


def test_caller_that_is_killed_takes_the_job_along(tmp_path):
    mark = tmp_path / "pids"
    script = tmp_path / "caller.py"
    script.write_text(
        "import horovod, os, time\n"
        "def f():\n"
        f"    open({str(mark)!r}, 'a').write(f'{{os.getpid()}}\\n')\n"
        "    time.sleep(300)\n"
        "horovod.run(f, num_proc=2)\n"
    )
    caller = subprocess.Popen([sys.executable, script])
    deadline = time.monotonic() + 60
    while not (mark.exists() and mark.read_text().count("\n") == 2):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    caller.kill()
    caller.wait()
    pids = [int(line) for line in mark.read_text().split()]
    deadline = time.monotonic() + 60
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        assert time.monotonic() < deadline, "ranks survived their caller"
        time.sleep(0.05)


def test_interrupt_ends_the_job(tmp_path):
    script = tmp_path / "caller.py"
    mark = tmp_path / "up"
    script.write_text(
        "import horovod, time\n"
        f"def f():\n    open({str(mark)!r}, 'w')\n    time.sleep(300)\n"
        "try:\n    horovod.run(f, num_proc=1)\n"
        "except KeyboardInterrupt:\n    print('interrupted')\n"
    )
    caller = subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not mark.exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    caller.send_signal(signal.SIGINT)
    out, _ = caller.communicate(timeout=120)
    assert "interrupted" in out


def test_over_ssh_through_the_store(sshd, blind_python, tmp_path, monkeypatch):
    """The remote rank sees none of our files: function and result travel through the store."""
    hidden = tmp_path / "tmp"
    hidden.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(hidden))
    env = {**os.environ, **sshd.env(), "HIDDEN": str(hidden)}

    def call(blob):
        return where(), os.path.exists(sys.argv[1]), len(blob), bytes(40 << 20)[:1] + blob[:1]

    results = horovod.run(
        call,
        (b"x" * (33 << 20),),
        num_proc=2,
        hosts="localhost:1,127.0.0.2:1",
        ssh_port=sshd.port,
        ssh_identity_file=str(sshd.identity),
        executable=blind_python,
        env=env,
    )
    assert results == [
        ((0, 2), True, 33 << 20, b"\0x"),
        ((1, 2), False, 33 << 20, b"\0x"),
    ]


def test_failure_over_ssh(sshd, blind_python, tmp_path, monkeypatch):
    hidden = tmp_path / "tmp"
    hidden.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(hidden))

    def call():
        if where()[0] == 1:
            raise KeyError("far away")
        time.sleep(60)

    with pytest.raises(RankError, match="far away") as caught:
        horovod.run(
            call,
            num_proc=2,
            hosts="localhost:1,127.0.0.2:1",
            ssh_port=sshd.port,
            ssh_identity_file=str(sshd.identity),
            executable=blind_python,
            env={**os.environ, **sshd.env(), "HIDDEN": str(hidden)},
        )
    assert (caught.value.rank, caught.value.host) == (1, "127.0.0.2")
