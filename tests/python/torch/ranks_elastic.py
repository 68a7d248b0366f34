# SPDX-License-Identifier: Apache-2.0
"""State classes of elastic training, without an elastic launcher."""

import copy

import horovod.torch as hvd
import pytest
import torch
from horovod.common.elastic import ObjectState, State, run_fn
from horovod.common.exceptions import HorovodInternalError, HostsUpdatedInterrupt
from horovod.runner.elastic.worker import HostUpdateResult
from horovod.torch.elastic import ElasticSampler, TorchState
from horovod.torch.elastic import state as state_module
from torch import nn

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()


def make():
    torch.manual_seed(RANK)
    model = nn.Linear(2, 2)
    return model, torch.optim.SGD(model.parameters(), lr=0.1 + RANK, momentum=0.9)


def test_torch_state():
    model, optimizer = make()
    state = TorchState(model=model, optimizer=optimizer, epoch=RANK, batch=7)
    assert state.epoch == RANK and state.batch == 7 and state.model is model
    state.sync()
    assert state.epoch == 0 and optimizer.param_groups[0]["lr"] == 0.1
    state.save()
    saved = copy.deepcopy(model.state_dict())
    state.epoch = 5
    with torch.no_grad():
        model.weight.add_(1.0)
    state.restore()
    assert state.epoch == 0
    for name, value in model.state_dict().items():
        assert torch.equal(value, saved[name])
    other, _ = make()
    state.model = other
    assert state.model is other and state._handlers["model"].value is other
    state.commit()


def saved_tensors(state):
    """What the state keeps of the model and of the optimizer's momenta."""
    model = state._handlers["model"]._saved_model_state
    optimizer = state._handlers["optimizer"]._saved_optimizer_state
    momenta = [entry["momentum_buffer"] for entry in optimizer["state"].values()]
    return [*model.values(), *momenta]


def test_saving_again_uses_the_same_memory():
    model, optimizer = make()
    state = TorchState(model=model, optimizer=optimizer)

    def step():
        optimizer.zero_grad()
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()

    step()
    state.save()
    places = [tensor.data_ptr() for tensor in saved_tensors(state)]
    step()
    state.save()
    assert [tensor.data_ptr() for tensor in saved_tensors(state)] == places
    kept = [tensor.clone() for tensor in saved_tensors(state)]
    # Training goes on in memory of its own, also after it was set back.
    for _ in range(2):
        step()
        assert all(map(torch.equal, saved_tensors(state), kept))
        state.restore()
        assert model.weight.grad is None
        assert all(map(torch.equal, model.state_dict().values(), kept))


def test_other_names_and_nothing():
    model, _ = make()
    state = TorchState(student=model, teacher=nn.Linear(1, 1), step=3)
    assert set(state._handlers) == {"student", "teacher"}
    assert state.model is None and state.optimizer is None
    state.save()
    state.sync()
    state.restore()
    registry = state_module.get_handler_registry()
    assert registry[0][0] is nn.Module
    state_module.set_handler_registry(registry)


def test_sampler():
    sampler = ElasticSampler(list(range(10)), shuffle=False)
    assert sampler.num_replicas == SIZE and sampler.rank == RANK
    per_rank = -(-10 // SIZE)
    assert len(sampler) == per_rank and sampler.total_size == per_rank * SIZE
    assert list(sampler)[0] == RANK
    sampler.record_batch(0, 2)
    assert sampler.processed_num == 2 * SIZE
    sampler.reset()
    assert sampler.remaining_indices == list(range(2 * SIZE, 10))
    assert sampler.state_dict() == {"epoch": 0, "processed_num": 2 * SIZE}
    other = ElasticSampler(list(range(10)), shuffle=False)
    other.load_state_dict(sampler.state_dict())
    assert list(other) == list(sampler)
    sampler.set_epoch(1)
    assert sampler.processed_num == 0 and len(sampler.remaining_indices) == 10
    shuffled = ElasticSampler(list(range(100)), shuffle=True, seed=1)
    seen = hvd.allgather(torch.tensor(list(shuffled)))
    assert set(seen.tolist()) == set(range(100))
    first = list(shuffled)
    shuffled.set_epoch(1)
    assert list(shuffled) != first
    state = TorchState(sampler=shuffled)
    state.sync()
    shuffled.record_batch(0, 4)
    state.save()
    shuffled.record_batch(1, 4)
    state.restore()
    assert shuffled.processed_num == 4 * SIZE


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("total", [0, 1, 2, 3, 7, 10])
def test_sampler_shares_are_equal_however_few_samples_are_left(total, shuffle):
    for processed in range(total + 2):
        sampler = ElasticSampler(list(range(total)), shuffle=shuffle)
        sampler.load_state_dict({"epoch": 3, "processed_num": processed})
        left = sampler.remaining_indices
        assert len(left) == max(total - processed, 0)
        mine = list(sampler)
        assert sampler.indices == mine
        assert len(sampler) == len(mine) == -(-len(left) // SIZE) == sampler.num_samples
        shares = hvd.allgather_object(mine)
        assert {len(share) for share in shares} == {len(sampler)}
        dealt = [share[i] for i in range(len(sampler)) for share in shares]
        assert dealt == (left * (SIZE + 1))[: len(dealt)]


def test_sampler_indices_are_the_share_at_any_time():
    sampler = ElasticSampler(list(range(9)), shuffle=False)
    assert sampler.indices == (list(range(9)) * 2)[RANK : sampler.total_size : SIZE]
    sampler.record_batch(0, 1)
    sampler.reset()
    assert sampler.indices == list(sampler)
    assert sampler.indices[0] == SIZE + RANK


def test_object_state_and_messages():
    state = ObjectState(hvd.broadcast_object, hvd.rank, value=RANK)
    state.sync()
    assert state.value == 0
    calls = []
    state.register_reset_callbacks([lambda: calls.append(1)])
    state.check_host_updates()
    if RANK == 0:
        state.on_hosts_updated(1, HostUpdateResult.removed)
    with pytest.raises(HostsUpdatedInterrupt) as caught:
        state.commit()
    assert caught.value.skip_sync is True
    if RANK == 0:
        state.on_hosts_updated(2, HostUpdateResult.added)
        state.on_hosts_updated(3, HostUpdateResult.removed)
    with pytest.raises(HostsUpdatedInterrupt) as caught:
        state.check_host_updates()
    assert caught.value.skip_sync is False
    state.check_host_updates()
    state.on_reset()
    assert calls == [1]
    with pytest.raises(NotImplementedError):
        State(hvd.broadcast_object, hvd.rank).save()


def test_run_fn():
    log = []

    class Recorder(ObjectState):
        def sync(self):
            log.append("sync")
            super().sync()

        def restore(self):
            log.append("restore")
            super().restore()

    state = Recorder(hvd.broadcast_object, hvd.rank, n=0)
    errors = [
        HorovodInternalError("lost"),
        HostsUpdatedInterrupt(True),
        HostsUpdatedInterrupt(False),
    ]

    def train(state, extra):
        log.append("train")
        if errors:
            raise errors.pop(0)
        return extra

    assert run_fn(train, lambda: log.append("reset"))(state, 42) == 42
    expected = "sync train restore reset sync train reset train reset sync train"
    assert " ".join(log) == expected

    def broken(state):
        raise KeyError("other errors go on")

    with pytest.raises(KeyError):
        run_fn(broken, lambda: None)(state)


def test_elastic_run_goes_on_after_an_error():
    """The whole way: an error in training, new init, state restored, training goes on."""
    model, optimizer = make()
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    state = TorchState(model=model, optimizer=optimizer, step=0)
    has_failed = []

    @hvd.elastic.run
    def train(state):
        while state.step < 6:
            optimizer.zero_grad()
            model(torch.ones(1, 2) * (RANK + 1)).sum().backward()
            if state.step == 3 and not has_failed:
                has_failed.append(True)
                raise HorovodInternalError("as if a peer had died")
            optimizer.step()
            state.step += 1
            if state.step % 2 == 0:
                state.commit()
        return state.step

    assert train(state) == 6
    rows = hvd.allgather(model.weight.detach().reshape(1, -1))
    assert all(torch.equal(row, rows[0]) for row in rows)
