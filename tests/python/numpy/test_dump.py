# SPDX-License-Identifier: Apache-2.0
"""hvd.dump() and SIGUSR1: every rank writes what it is doing, also while its Python is stuck."""

import json
import re

from horovod.runner import inspect_postmortem

# Rank 1 sits in a C function with the interpreter's lock; rank 0 waits for it in an allreduce.
# SIGUSR1 comes from outside, from a process that waits until both are stuck.
STUCK = """
import ctypes, os, subprocess, sys
import numpy as np, horovod.numpy as hvd
folder = os.environ["HOROVOD_POSTMORTEM_DIR"]
hvd.init()
hvd.allreduce(np.ones(4), name="first")
ask = "import os, sys, time; time.sleep(1); os.kill(int(sys.argv[1]), 10)"
subprocess.Popen([sys.executable, "-c", ask, str(os.getpid())])
if hvd.rank() == 1:
    ctypes.PyDLL(None).usleep(3_000_000)  # the signal interrupts it
    ctypes.PyDLL(None).usleep(1_000_000)
    print(sorted(os.listdir(folder)))
hvd.allreduce(np.ones(4), name="late")
hvd.shutdown()
"""

# A program with a handler of its own keeps it.
OWN = """
import os, signal
import horovod.numpy as hvd
seen = []
signal.signal(signal.SIGUSR1, lambda *_: seen.append(1))
hvd.init()
os.kill(os.getpid(), signal.SIGUSR1)
assert seen == [1]
hvd.shutdown()
os.kill(os.getpid(), signal.SIGUSR1)
assert seen == [1, 1]
"""

DUMP = """
import json, os, sys
import numpy as np, horovod.numpy as hvd
try:
    hvd.dump()
    raise SystemExit("before init()")
except ValueError as error:
    assert "hvd.init()" in str(error)
hvd.init()
try:
    hvd.dump()
    raise SystemExit("without a folder")
except ValueError as error:
    assert "HOROVOD_POSTMORTEM_DIR" in str(error)
try:
    hvd.dump("/dev/null/folder")
    raise SystemExit("not a folder")
except ValueError as error:
    assert "/dev/null/folder/rank." in str(error)
hvd.allreduce(np.ones(4), name="a")
path = hvd.dump(os.environ["FOLDER"])
assert path == os.path.join(os.environ["FOLDER"], f"rank.{hvd.rank()}.json")
seen = json.load(open(path))
assert (seen["reason"], seen["rank"], seen["state"]) == ("dump", hvd.rank(), "running")
assert any(event["name"] == "allreduce.a" for event in seen["events"])
hvd.barrier()
hvd.shutdown()
"""


def test_signal_while_python_is_stuck(run_script, tmp_path, capsys):
    folder = tmp_path / "stuck"
    result = run_script(STUCK, 2, {"HOROVOD_POSTMORTEM_DIR": str(folder)})
    assert result.returncode == 0, result.stdout
    # Written while rank 1 was inside of the C function, not afterwards.
    assert "['rank.0.json', 'rank.1.json']" in result.stdout
    waiting = json.loads((folder / "rank.0.json").read_text())
    assert waiting["reason"] == "signal"
    assert waiting["process_sets"][0]["ops"][0]["name"] == "allreduce.late"
    assert inspect_postmortem.main([str(folder)]) == 0
    story = capsys.readouterr().out
    assert "rank 0,1 wrote this on SIGUSR1" in story
    assert "cause" not in story
    assert re.search(r"allreduce\.late \(announced\) for \d+\.\d s, missing rank \[1\]", story)


def test_own_handler_stays(run_script, tmp_path):
    result = run_script(OWN, 1, {"HOROVOD_POSTMORTEM_DIR": str(tmp_path / "own")})
    assert result.returncode == 0, result.stdout


def test_dump(run_script, tmp_path, capsys):
    folder = tmp_path / "dumps"
    result = run_script(DUMP, 2, {"FOLDER": str(folder)})
    assert result.returncode == 0, result.stdout
    assert sorted(path.name for path in folder.iterdir()) == ["rank.0.json", "rank.1.json"]
    assert inspect_postmortem.main([str(folder)]) == 0
    assert "rank 0,1 wrote this by hvd.dump()" in capsys.readouterr().out


def test_inspect_says_which_file_is_older(tmp_path, capsys):
    for rank, reason in enumerate(("failure", "dump")):
        cause = {"cause": {"text": "rank 2 is gone"}} if reason == "failure" else {}
        text = {"rank": rank, "size": 2, "time_s": 100.0 - 9 * rank, "reason": reason, **cause}
        (tmp_path / f"rank.{rank}.json").write_text(json.dumps(text))
    (tmp_path / "rank.7.json").write_text("{")
    assert inspect_postmortem.main([str(tmp_path)]) == 0
    story = capsys.readouterr().out
    assert "cause, by rank 0: rank 2 is gone" in story
    assert "rank 1 wrote this by hvd.dump(), 9.0 s before the last file" in story
