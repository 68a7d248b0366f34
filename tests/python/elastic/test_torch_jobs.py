# SPDX-License-Identifier: Apache-2.0
"""PyTorch trainings whose workers are lost, hang and come back; compared with a replay."""

import json

import torch
from torch_replay import check_samples, replay

FOUR = ("-np", "4", "--min-np", "2", "--max-np", "4", "-H", "localhost:4")


def finish(job):
    """The weights are those of one process with the same history; returns (size, history)."""
    job.succeed()
    answer = json.loads((job.folder / "answer").read_text(encoding="utf-8"))
    for ours, theirs in zip(replay(answer["history"]), answer["weights"], strict=True):
        assert torch.allclose(ours, torch.tensor(theirs, dtype=ours.dtype), rtol=1e-9, atol=1e-12)
    check_samples(answer["history"])
    return answer["size"], answer["history"]


def run_with_kills(start, faults, rollback):
    """The job comes back to its full size, and every worker that was not killed ends well."""
    env = {"TEST_FAULTS": faults, "TEST_FINAL_SIZE": "4", "TEST_ROLLBACK": rollback}
    job = start("torch_training.py", *FOUR, env=env)
    size, history = finish(job)
    kills = len(faults.split())
    assert size == 4
    assert {len(step) for step in history} >= {4, 4 - kills}
    assert len(list(job.folder.glob("log.*"))) == 4 + kills, job.describe()


def test_issue_2484_a_peer_dies_while_gradients_are_reduced(start):
    run_with_kills(start, "kill:backward:10:1", "1")


def test_issue_3264_rank_0_and_another_die_and_survivors_do_not_abort(start):
    run_with_kills(start, "kill:step:10:0 kill:step:10:2", "0")


def test_stopped_and_leaving_workers_with_rare_commits(start):
    env = {"TEST_FAULTS": "stop:step:7:3 term:step:12:1", "TEST_COMMIT_EVERY": "5"}
    env["HOROVOD_HUNG_ERROR_SECONDS"] = "1"
    finish(start("torch_training.py", *FOUR, env=env))
