# SPDX-License-Identifier: Apache-2.0
"""Ranks that stay: namespaces, output, failures, interrupts, deaths."""

import os
import signal
import threading

import horovod.notebook.pool as pool_module
import pytest
from horovod.notebook import PoolError, fold

INIT = "import horovod.numpy as hvd, numpy as np\nhvd.init()\n"


def run(pool, code, number=1):
    return pool.call(("run", code, number))


def outputs(answers):
    assert [answer[1] for answer in answers] == [""] * len(answers), answers
    return [answer[0] for answer in answers]


def test_fold():
    assert fold(["a", "b", "a", "", "a"]) == [("ranks 0, 2, 4", "a"), ("rank 1", "b")]
    assert fold(["x", "x"]) == [("all 2 ranks", "x")]
    assert fold(["a", "a", "a", "b"]) == [("ranks 0-2", "a"), ("rank 3", "b")]
    assert fold(["", ""]) == []


def test_variables_stay_and_ranks_differ(pool):
    assert outputs(run(pool, INIT + "x = np.full(2, float(hvd.rank()))")) == ["", "", ""]
    assert outputs(run(pool, "hvd.allreduce(x, op=hvd.Sum).tolist()")) == ["[3.0, 3.0]\n"] * 3
    assert outputs(run(pool, "print(hvd.rank())")) == ["0\n", "1\n", "2\n"]
    assert outputs(run(pool, "x = 1;")) == [""] * 3


def test_push_and_pull(pool):
    assert pool.call(("push", {"a": [1, 2]})) == [("", "", None)] * 3
    outputs(run(pool, "import os\nb = len(a) + int(os.environ['HOROVOD_RANK'])"))
    answers = pool.call(("pull", ["b"]))
    assert [answer[2]["b"] for answer in answers] == [2, 3, 4]
    assert "'nosuch' is not defined" in pool.call(("pull", ["nosuch"]))[0][1]
    run(pool, "lock = __import__('threading').Lock()")
    assert "can't be sent" in pool.call(("pull", ["lock"]))[0][1]


def test_a_failure_on_one_rank_leaves_all_alive(pool):
    run(pool, "import os\nrank = int(os.environ['HOROVOD_RANK'])\n")
    answers = run(pool, "def f():\n    return 1 / (rank - 1)\n\nf()", 7)
    assert [bool(answer[1]) for answer in answers] == [False, True, False]
    trace = answers[1][1]
    assert 'File "<cell 7>", line 2, in f' in trace and "return 1 / (rank - 1)" in trace
    assert "worker.py" not in trace and trace.endswith("ZeroDivisionError: division by zero\n")
    assert all("SystemExit" in answer[1] for answer in run(pool, "import sys; sys.exit(3)"))
    assert all("SyntaxError" in answer[1] for answer in run(pool, "for"))
    assert outputs(run(pool, "rank")) == ["0\n", "1\n", "2\n"]


def test_an_interrupt_stops_a_hung_collective(pool, monkeypatch):
    monkeypatch.setattr(pool_module, "INTERRUPT_S", 60)  # a busy machine is not what is tested
    run(pool, INIT + "kept = hvd.rank()")
    # Rank 2 never comes; a rank says when it is about to wait.
    code = (
        "import pathlib, time\n"
        "pathlib.Path(where, str(kept)).touch()\n"
        "time.sleep(300) if kept == 2 else hvd.allreduce(np.ones(2), name='hangs')"
    )
    folder = os.path.dirname(pool._log)
    pool.call(("push", {"where": folder}))

    def interrupt():
        while not all(os.path.exists(os.path.join(folder, str(rank))) for rank in range(3)):
            pass
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    answers = run(pool, code)
    assert all(answer[1].endswith("KeyboardInterrupt\n") for answer in answers), answers
    assert outputs(run(pool, "kept")) == ["0\n", "1\n", "2\n"]
    assert outputs(run(pool, "hvd.allreduce(np.ones(1), name='again').tolist()")) == ["[1.0]\n"] * 3


def test_a_death_is_told_with_its_cause(pool):
    with pytest.raises(PoolError, match=r"rank 1 on localhost was killed by signal 9"):
        run(
            pool,
            "import os, signal, time\nif os.environ['HOROVOD_RANK'] == '1':\n"
            "    os.kill(os.getpid(), signal.SIGKILL)\ntime.sleep(300)",
        )
    assert not pool.is_alive


def test_ranks_that_do_not_start():
    with pytest.raises(PoolError, match="Requested more processes"):
        pool_module.Pool(3, ["-H", "localhost:2"])
