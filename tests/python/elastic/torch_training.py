# SPDX-License-Identifier: Apache-2.0
"""One worker of an elastic PyTorch training: model, momentum and sampler survive what tests do.

All is double precision, so that one process that replays which samples each step had comes to the
same weights. Rank 0 writes those and the history at the end.
"""

import json
import os
import time

import faults
import horovod.torch as hvd
import torch
from faults import FOLDER, WORKER, write
from horovod.common.elastic import exchange_numbers
from horovod.common.library import native
from torch_replay import SAMPLES, hash_of, loss_of, make_model

EPOCHS = int(os.environ.get("TEST_EPOCHS", "2"))
FINAL_SIZE = int(os.environ.get("TEST_FINAL_SIZE", "0"))  # go on until there are so many
ROLLBACK = os.environ.get("TEST_ROLLBACK", "1") == "1"
COMMIT_EVERY = int(os.environ.get("TEST_COMMIT_EVERY", "1"))
PAUSE_S = float(os.environ.get("TEST_PAUSE_S", "0.02"))


def log(state, what):
    write(f"log.{WORKER}.{os.getpid()}", f"{what} {state.step} {hvd.rank()} {hvd.size()}")


def fail(text):
    write("wrong", f"{WORKER}: {text}")
    os._exit(9)


def check_same(model, optimizer, where):
    """Have all ranks, also those that have just come, the same weights and momenta?"""
    numbers = exchange_numbers(hash_of(model, optimizer), "hash")
    if len(set(numbers)) != 1:
        fail(f"{where}: {numbers}")


def main():
    hvd.init()
    torch.manual_seed(int.from_bytes(os.urandom(4), "little"))  # a newcomer starts anywhere
    is_source = hvd.rank() == 0 and native.generation()["epoch"] == 1
    model, optimizer = make_model(is_random=not is_source)
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    sampler = hvd.elastic.ElasticSampler(range(SAMPLES), seed=3)
    state = hvd.elastic.TorchState(
        model=model, optimizer=optimizer, sampler=sampler, epoch=0, step=0, history=()
    )
    state.register_reset_callbacks([lambda: log(state, "reset")])
    log(state, "start")

    @hvd.elastic.run(rollback=ROLLBACK)
    def train(state):
        check_same(model, optimizer, f"at step {state.step}")
        log(state, "train")
        # An epoch that was interrupted is brought to its end.
        while state.epoch < EPOCHS or hvd.size() < FINAL_SIZE or state.sampler.processed_num:
            for index in state.sampler:
                time.sleep(PAUSE_S)
                faults.pass_point("step", state.step, hvd.rank())
                indices = exchange_numbers(index, "index")
                optimizer.zero_grad()
                loss_of(model, index).backward()
                faults.pass_point("backward", state.step, hvd.rank())
                optimizer.step()
                state.step, state.history = state.step + 1, (*state.history, indices)
                state.sampler.record_batch(0, 1)
                if state.step % COMMIT_EVERY == 0:
                    state.commit()
            state.epoch += 1
            state.sampler.set_epoch(state.epoch)
            log(state, "epoch")
            state.commit()

    train(state)
    check_same(model, optimizer, "in the end")
    if hvd.rank() == 0:
        weights = [p.tolist() for p in model.parameters()]
        answer = {"history": state.history, "weights": weights, "size": hvd.size()}
        (FOLDER / "answer").write_text(json.dumps(answer), encoding="utf-8")
    hvd.shutdown()


if __name__ == "__main__":
    main()
