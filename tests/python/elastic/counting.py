# SPDX-License-Identifier: Apache-2.0
"""One worker of an elastic job without a framework: integers, so that every sum can be checked.

In step s rank r contributes number(s, r). Each rank sees all contributions, and so notices at once
if one is missing, comes twice or belongs to another step. The state remembers how many ranks each
step had; replaying that must give the same total.
"""

import os
import sys
import time

import faults
from counting_replay import number, replay
from faults import FOLDER
from horovod._keras import host as hvd
from horovod.common.elastic import (
    ObjectState,
    broadcast_numbers,
    exchange_numbers,
    given_process_sets,
    make_run,
)
from horovod.common.library import native

STEPS = int(os.environ.get("TEST_STEPS", "60"))
FINAL_SIZE = int(os.environ.get("TEST_FINAL_SIZE", "0"))  # go on until there are so many
ROLLBACK = os.environ.get("TEST_ROLLBACK", "1") == "1"
PAUSE_S = float(os.environ.get("TEST_PAUSE_S", "0.005"))
COMMIT_EVERY = int(os.environ.get("TEST_COMMIT_EVERY", "1"))
HAS_SETS = os.environ.get("TEST_SETS") == "1"
WORKER = os.environ.get("HOROVOD_WORKER", "0")


class CountingState(ObjectState):
    is_new = False

    def sync(self):
        if self.is_new:
            self.is_new = False
            faults.pass_point("new", self.step, hvd.rank())
        faults.pass_point("sync", self.step, hvd.rank())
        super().sync()


def write(name, text):
    with open(FOLDER / name, "a", encoding="utf-8") as file:
        file.write(text + "\n")


def log(state, what):
    epoch = native.generation()["epoch"]
    text = f"{what} {state.step} {hvd.rank()} {hvd.size()} {epoch} {time.monotonic():.3f}"
    write(f"log.{WORKER}.{os.getpid()}", text)


def fail(text):
    write("wrong", f"{WORKER}: {text}")
    sys.stderr.write(f"WRONG: {text}\n")
    os._exit(9)


def check_environment():
    for name in ("rank", "size", "local_rank", "local_size", "cross_rank", "cross_size"):
        told, real = os.environ[f"HOROVOD_{name.upper()}"], str(getattr(hvd, name)())
        if told != real:
            fail(f"HOROVOD_{name.upper()} is {told}, not {real}")


def check_sets(sets):
    """Each set that fits works, the others have no id."""
    for index, process_set in enumerate(sets):
        fits = process_set.ranks[-1] < hvd.size()
        if fits != (process_set.process_set_id is not None):
            fail(f"{process_set} in a world of {hvd.size()}")
        if fits and process_set.included():
            import numpy as np

            (total,) = hvd.grouped_allreduce(
                [np.array([1.0])], f"set.{index}", hvd.Sum, process_set=process_set
            )
            if total[0] != len(process_set.ranks):
                fail(f"{process_set} has {total[0]} members")


def main():
    sets = [hvd.ProcessSet([0, 1]), hvd.ProcessSet([0, 2])] if HAS_SETS else []
    hvd.init(process_sets=sets)
    state = CountingState(hvd.broadcast_object, hvd.rank, step=0, total=0, sizes=())
    state.is_new = native.generation()["epoch"] > 1
    state.register_reset_callbacks(
        [
            lambda: log(state, "reset"),
            lambda: faults.pass_point("reset", state.step, hvd.rank()),
        ]
    )
    state.register_leave_callbacks([lambda: write(f"left.{WORKER}", f"{state.step} {state.total}")])
    log(state, "start")

    def reset():
        hvd.shutdown()
        hvd.init(process_sets=given_process_sets())

    def is_over(state):
        wish = (FOLDER / "finish").exists() if STEPS == 0 else state.step >= STEPS
        is_full = hvd.size() >= FINAL_SIZE
        return broadcast_numbers([int(wish and is_full)], "over")[0]

    @make_run(reset)(rollback=ROLLBACK)
    def train(state):
        check_environment()
        check_sets(sets)
        log(state, "train")
        if len(state.sizes) != state.step or state.total != replay(state.sizes):
            fail(f"after {state.step} steps the total is {state.total}: {state.sizes}")
        while not is_over(state):
            time.sleep(PAUSE_S)
            step = state.step
            faults.pass_point("step", step, hvd.rank())
            numbers = exchange_numbers(number(step, hvd.rank()), "step")
            if numbers != [number(step, r) for r in range(hvd.size())]:
                fail(f"step {step}, rank {hvd.rank()} of {hvd.size()}: {numbers}")
            # One assignment: what a failure may interrupt changes as a whole.
            state.step, state.total, state.sizes = (
                step + 1,
                state.total + sum(numbers),
                (*state.sizes, len(numbers)),
            )
            faults.pass_point("applied", step, hvd.rank())
            log(state, "step")
            if state.step % COMMIT_EVERY == 0:
                state.commit()
        return state.step

    train(state)
    same = hvd.broadcast_object((state.step, state.total, state.sizes))
    if same != (state.step, state.total, state.sizes):
        fail(f"rank 0 has {same}, rank {hvd.rank()} {(state.step, state.total, state.sizes)}")
    sizes = " ".join(map(str, state.sizes))
    write(f"result.{hvd.rank()}", f"{state.step} {state.total} {hvd.size()} {sizes}")
    hvd.shutdown()


if __name__ == "__main__":
    main()
