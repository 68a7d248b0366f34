# SPDX-License-Identifier: Apache-2.0
"""The batch script of examples/slurm has itself queued again, and goes on from its checkpoint."""

import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
EXAMPLE = ROOT / "examples" / "slurm" / "train.sbatch"

# Takes what the example passes; its first life does not end by itself.
RESUMING = """
import os, sys, time
import horovod.numpy as hvd
path = sys.argv[sys.argv.index("--checkpoint") + 1]
hvd.init()
is_resumed = hvd.broadcast_object(os.path.exists(path), root_rank=0)
if hvd.rank() == 0:
    print("resumed" if is_resumed else "begun", hvd.size(), flush=True)
    open(path, "w").close()
while not is_resumed:
    time.sleep(0.1)
"""


def wait_for(condition, what, text=str):
    deadline = time.monotonic() + 200
    while not condition():
        assert time.monotonic() < deadline, f"no {what}: {text()}"
        time.sleep(0.2)


def test_example_is_queued_again_and_resumes(slurm, tmp_path):
    """Before its limit Slurm sends USR1 to the script; here scancel does."""
    (tmp_path / "train.py").write_text(RESUMING)
    out, path = tmp_path / "out", tmp_path / "run.pt"
    env = {"PATH": f"{Path(sys.executable).parent}:{slurm.env['PATH']}"}
    limits = ["--time=5", f"--output={out}"]  # the partition allows ten minutes
    command = ["sbatch", "--parsable", *limits, EXAMPLE, tmp_path / "train.py", path]
    job = slurm(*command, env=env, cwd=tmp_path).stdout.strip()

    def told():
        return out.read_text() if out.exists() else ""

    wait_for(path.exists, "checkpoint", told)
    slurm("scancel", "--signal=USR1", "--batch", job)
    wait_for(lambda: "queued again" in told(), "requeue", told)

    def is_pending():
        state = slurm("squeue", "-h", "-j", job, "-o", "%T", check=False).stdout
        return "PENDING" in state

    wait_for(is_pending, "pending job", told)
    # Slurm waits for two minutes before it starts a job again. Not at once: its nodes count in
    # seconds, and refuse a start in the second in which they revoked the first one's credential.
    time.sleep(2)
    slurm("scontrol", "update", f"JobId={job}", "StartTime=now")
    wait_for(lambda: "resumed 4" in told(), "second run", told)
    assert "begun 4" in told()
