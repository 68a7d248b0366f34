# SPDX-License-Identifier: Apache-2.0
"""broadcast_parameters, broadcast_optimizer_state, objects, names to import."""

import copy
import inspect

import horovod
import horovod.torch as hvd
import pytest
import torch
from horovod.common import util
from horovod.common.elastic import run_fn
from horovod.common.exceptions import (
    HorovodInternalError,
    HorovodVersionMismatchError,
    HostsUpdatedInterrupt,
    get_version_mismatch_message,
)
from optimizers import CLASSES
from torch import nn

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
ROOT = SIZE - 1


def equal_everywhere(tensor):
    rows = hvd.allgather(tensor.detach().reshape(1, -1))
    assert all(torch.equal(row, rows[0]) for row in rows)


def test_broadcast_parameters():
    torch.manual_seed(RANK)
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2)).to(
        memory_format=torch.channels_last
    )
    model.register_buffer("flag", torch.tensor([bool(RANK)]))
    expected = hvd.broadcast_object(copy.deepcopy(model.state_dict()), ROOT)
    hvd.broadcast_parameters(model.state_dict(), root_rank=ROOT)
    for name, value in model.state_dict().items():
        assert torch.equal(value, expected[name])
    torch.manual_seed(RANK)
    model = nn.Linear(2, 2)
    hvd.broadcast_parameters(list(model.named_parameters()), root_rank=0)
    equal_everywhere(model.weight)
    tensors = [torch.full((2,), RANK), torch.tensor(float(RANK))]
    hvd.broadcast_parameters(tensors, root_rank=ROOT)
    assert tensors[0].tolist() == [ROOT, ROOT] and tensors[1].item() == ROOT
    for wrong in (model.named_parameters(), tuple(tensors), None):
        with pytest.raises(ValueError, match="invalid params of type"):
            hvd.broadcast_parameters(wrong, root_rank=0)


@pytest.mark.parametrize("is_wrapped", [False, True])
@pytest.mark.parametrize("name", CLASSES)
def test_broadcast_optimizer_state(name, is_wrapped):
    cls = getattr(torch.optim, name)
    torch.manual_seed(RANK)
    model = nn.Linear(4, 4, bias=False)
    has_lr = "lr" in inspect.signature(cls).parameters
    options = {"lr": 0.5 + RANK} if has_lr else {}
    optimizer = cls(model.parameters(), **options)
    if is_wrapped:
        optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    if RANK == ROOT:  # only the root has been training
        base = optimizer.__class__.__mro__[1] if is_wrapped else cls
        model.weight.grad = torch.ones(4, 4)
        base.step(optimizer)
        optimizer.zero_grad()
    hvd.broadcast_parameters(model.state_dict(), root_rank=ROOT)
    hvd.broadcast_optimizer_state(optimizer, root_rank=ROOT)
    states = hvd.allgather_object(optimizer.state_dict())
    for state in states:
        assert state["param_groups"] == states[0]["param_groups"]
        assert state["state"].keys() == states[0]["state"].keys()
        for index, entries in state["state"].items():
            for key, value in entries.items():
                other = states[0]["state"][index][key]
                assert type(value) is type(other)
                if isinstance(value, torch.Tensor):
                    assert value.dtype == other.dtype and torch.equal(value, other)
                else:
                    assert value == other
    if has_lr:
        assert optimizer.param_groups[0]["lr"] == 0.5 + ROOT
        assert isinstance(optimizer.param_groups[0]["lr"], float)
    model(torch.ones(1, 4)).sum().backward()
    optimizer.step()
    equal_everywhere(model.weight)


def test_broadcast_optimizer_options_keep_their_types():
    model = nn.Linear(2, 2)
    optimizer = torch.optim.Adam(
        [
            {"params": [model.weight], "betas": (0.1 + 0.1 * RANK, 0.5), "lr": 1.0 + RANK},
            {"params": [model.bias], "amsgrad": RANK == ROOT, "weight_decay": 0.1 * RANK},
        ]
    )
    hvd.broadcast_optimizer_state(optimizer, root_rank=ROOT)
    first, second = optimizer.param_groups
    assert first["betas"] == (0.1 + 0.1 * ROOT, 0.5) and isinstance(first["betas"], tuple)
    assert first["lr"] == 1.0 + ROOT
    assert second["amsgrad"] is True and second["weight_decay"] == 0.1 * ROOT
    assert first["params"][0] is model.weight
    assert model.weight.grad.eq(0).all()  # made where there was no state yet


def test_broadcast_optimizer_state_sparse():
    for cls in (torch.optim.SGD, torch.optim.SparseAdam):
        model = nn.Embedding(4, 2, sparse=True)
        optimizer = cls(list(model.parameters()), lr=0.1)
        hvd.broadcast_optimizer_state(optimizer, root_rank=0, model=model)
    with pytest.raises(ValueError, match="LBFGS"):
        hvd.broadcast_optimizer_state(torch.optim.LBFGS(model.parameters()), root_rank=0)


def test_objects():
    mine = {"rank": RANK, "list": list(range(RANK)), "tensor": torch.full((RANK + 1,), RANK)}
    received = hvd.broadcast_object(mine, root_rank=ROOT)
    assert received["rank"] == ROOT and received["list"] == list(range(ROOT))
    assert (received is mine) == (RANK == ROOT)
    for obj in (None, 0, "x" * 100_000, [1, (2, 3)]):
        assert hvd.broadcast_object(obj if RANK == 0 else object, 0, name="any") == obj
    assert hvd.broadcast_object(lambda: ROOT, ROOT)() == ROOT
    gathered = hvd.allgather_object({"r": RANK, "s": "y" * RANK * 10})
    assert [entry["r"] for entry in gathered] == list(range(SIZE))


EXPORTED = """
    elastic Compression allgather_object broadcast_object broadcast_optimizer_state
    broadcast_parameters allreduce allreduce_async allreduce_ allreduce_async_ grouped_allreduce
    grouped_allreduce_async grouped_allreduce_ grouped_allreduce_async_ sparse_allreduce_async
    allgather allgather_async grouped_allgather grouped_allgather_async broadcast broadcast_async
    broadcast_ broadcast_async_ alltoall alltoall_async reducescatter reducescatter_async
    grouped_reducescatter grouped_reducescatter_async join barrier poll synchronize init shutdown
    is_initialized start_timeline stop_timeline size local_size cross_size rank local_rank
    cross_rank mpi_threads_supported mpi_enabled mpi_built gloo_enabled gloo_built nccl_built
    ddl_built ccl_built cuda_built rocm_built ProcessSet global_process_set add_process_set
    remove_process_set Average Sum Adasum Min Max Product HorovodInternalError DistributedOptimizer
    SyncBatchNorm mpi_ops functions optimizer compression sync_batch_norm check_extension
    mpi_lib_v2
"""

# Names of horovod.torch.mpi_ops that packages built on Horovod import.
OPS_PRIVATE = """
    _HorovodBasics _basics _setup_process_sets _handle_map _check_function _NULL mpi_lib
    handle_average_backwards_compatibility is_homogeneous check_installed_version
    _allreduce_async _grouped_allreduce_async _allgather_async _grouped_allgather_async
    _broadcast_async _alltoall_async _reducescatter_async _grouped_reducescatter_async
    HorovodAllreduce HorovodGroupedAllreduce HorovodAllgather HorovodGroupedAllgather
    HorovodBroadcast HorovodAlltoall HorovodReducescatter HorovodGroupedReducescatter
"""

SIGNATURES = {
    "allreduce": "tensor average name compression op prescale_factor postscale_factor process_set",
    "allreduce_async": "tensor average name op prescale_factor postscale_factor process_set",
    "allreduce_": "tensor average name op prescale_factor postscale_factor process_set",
    "grouped_allreduce": "tensors average name compression op prescale_factor postscale_factor "
    "process_set",
    "grouped_allreduce_async_": "tensors average name op prescale_factor postscale_factor "
    "process_set",
    "sparse_allreduce_async": "tensor name op process_set",
    "allgather": "tensor name process_set",
    "grouped_allgather": "tensors name process_set",
    "broadcast": "tensor root_rank name process_set",
    "broadcast_async_": "tensor root_rank name process_set",
    "alltoall": "tensor splits name process_set",
    "reducescatter": "tensor name compression op process_set prescale_factor postscale_factor",
    "reducescatter_async": "tensor name op process_set prescale_factor postscale_factor",
    "grouped_reducescatter": "tensors name compression op process_set prescale_factor "
    "postscale_factor",
    "join": "device",
    "barrier": "process_set",
    "poll": "handle",
    "synchronize": "handle",
    "broadcast_parameters": "params root_rank",
    "broadcast_optimizer_state": "optimizer root_rank model",
    "broadcast_object": "obj root_rank name process_set",
    "allgather_object": "obj name",
    "DistributedOptimizer": "optimizer named_parameters compression backward_passes_per_step op "
    "gradient_predivide_factor num_groups groups sparse_as_dense process_set",
    "SyncBatchNorm": "num_features eps momentum affine track_running_stats",
}


def test_names():
    for name in EXPORTED.split():
        assert hasattr(hvd, name), name
    for name, parameters in SIGNATURES.items():
        assert list(inspect.signature(getattr(hvd, name)).parameters) == parameters.split(), name
    for name in OPS_PRIVATE.split():
        assert hasattr(hvd.mpi_ops, name), name
    assert hvd.elastic.run_fn is run_fn
    assert horovod.__version__ == "0.29.0" and callable(horovod.run)
    assert (hvd.Average, hvd.Sum, hvd.Adasum, hvd.Min, hvd.Max, hvd.Product) == (0, 1, 2, 3, 4, 5)


def test_exceptions():
    assert issubclass(HorovodInternalError, RuntimeError)
    assert HostsUpdatedInterrupt(True).skip_sync is True
    error = HorovodVersionMismatchError("torch", "1", "2")
    assert isinstance(error, ImportError) and (error.name, error.installed_version) == (
        "torch",
        "2",
    )
    assert "torch" in get_version_mismatch_message("torch", "1", "2")


def test_util(monkeypatch):
    assert util.EXTENSIONS == ["tensorflow", "torch", "mxnet"]
    assert util.split_list(list(range(7)), 3) == [[0, 1, 2], [3, 4], [5, 6]]
    assert [util.num_rank_is_power_2(n) for n in (0, 1, 2, 3, 4)] == [
        False,
        True,
        True,
        False,
        True,
    ]
    assert util.is_iterable([1]) and not util.is_iterable(1)
    assert util.is_version_greater_equal_than("2.10.1", "2.9.0")
    for wrong in ((2, "1.0.0"), ("1.0.0", "1.0")):
        with pytest.raises(ValueError):
            util.is_version_greater_equal_than(*wrong)
    import os

    monkeypatch.setenv("HVD_TEST_B", "old")
    with util.env(HVD_TEST_A="1", HVD_TEST_B="2", HVD_TEST_C=None):
        assert os.environ["HVD_TEST_A"] == "1" and os.environ["HVD_TEST_B"] == "2"
        assert "HVD_TEST_C" not in os.environ
    assert "HVD_TEST_A" not in os.environ and os.environ["HVD_TEST_B"] == "old"
    assert util.gloo_built() is True and util.nccl_built() == 0
    util.check_extension("horovod.torch", "HOROVOD_WITH_PYTORCH", __file__, "mpi_lib_v2")
    if RANK == 0:
        assert util.extension_available("torch") is True
        assert util.extension_available("no_such_thing") is False
        assert util.gpu_available("torch") is torch.cuda.is_available()


def test_ctypes():
    library = hvd.mpi_ops._basics.MPI_LIB_CTYPES
    assert library.horovod_rank() == RANK and library.horovod_size() == SIZE
    assert library.horovod_is_initialized() == 1
    assert library.horovod_reduce_op_product() == 5
    assert library.horovod_number_of_process_sets() == 1
    assert library.horovod_process_set_size(0) == SIZE
    assert library.horovod_process_set_size(7) == -3
    assert library.horovod_process_set_included(0) == 1
    assert "CDLL" in str(library)
