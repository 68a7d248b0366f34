# SPDX-License-Identifier: Apache-2.0
"""Start all ranks from the same point: broadcast parameters, optimizer state, Python objects."""

import io
from typing import Any

import cloudpickle
import torch

from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.torch.mpi_ops import (
    allgather,
    broadcast_,
    broadcast_async_,
    rank,
    size,
    synchronize,
)


def broadcast_parameters(params: Any, root_rank: int) -> None:
    """Copy the root's values into the parameters of all ranks.

    params: model.state_dict(), model.named_parameters() as a list, or a list of tensors.
    """
    if isinstance(params, dict):
        pairs = sorted(params.items())
    elif isinstance(params, list):
        pairs = [p if isinstance(p, tuple) else (None, p) for p in params]
    else:
        raise ValueError(f"invalid params of type: {type(params)}")
    with torch.no_grad():
        handles = [broadcast_async_(p, root_rank, name) for name, p in pairs]
        for handle in handles:
            synchronize(handle)


class _Tensor:
    """Stands for a tensor of the optimizer's state in what the root describes."""

    def __init__(self, tensor):
        self.dtype = tensor.dtype
        self.shape = tuple(tensor.shape)


def _describe(value):
    is_dense = isinstance(value, torch.Tensor) and value.layout is torch.strided
    return _Tensor(value) if is_dense else value


def _flat_params(optimizer):
    return [p for group in optimizer.param_groups for p in group["params"]]


def _describe_state(optimizer):
    """Everything but the tensors: ({parameter number: {key: value}}, [options of each group])."""
    numbers = {p: i for i, p in enumerate(_flat_params(optimizer))}
    state = {}
    for p, entries in optimizer.state.items():
        key = numbers[p] if isinstance(p, torch.Tensor) else p
        if isinstance(entries, dict):
            state[key] = {name: _describe(value) for name, value in entries.items()}
        else:
            state[key] = entries
    options = [
        {name: _describe(value) for name, value in group.items() if name != "params"}
        for group in optimizer.param_groups
    ]
    return state, options


def _fit(old, described, device):
    """A tensor of the described dtype and shape; the one that is there, if it fits."""
    is_fit = (
        isinstance(old, torch.Tensor)
        and old.layout is torch.strided
        and old.dtype == described.dtype
        and tuple(old.shape) == described.shape
    )
    return old if is_fit else torch.empty(described.shape, dtype=described.dtype, device=device)


def _adopt(entries, described, device, prefix, ret_tensors):
    """Make `entries` look as described; what is to be broadcast goes into ret_tensors."""
    for name, value in described.items():
        if isinstance(value, _Tensor):
            entries[name] = _fit(entries.get(name), value, device(name, value))
            ret_tensors.append((f"{prefix}.{name}", entries[name]))
        else:
            entries[name] = value
    for name in set(entries) - set(described) - {"params"}:
        del entries[name]


def _sparse_weights(model):
    """The weights of a model whose gradients are sparse."""
    kinds = (torch.nn.Embedding, torch.nn.EmbeddingBag)
    layers = model.modules() if model is not None else ()
    return {layer.weight for layer in layers if isinstance(layer, kinds) and layer.sparse}


def _make_gradients(optimizer, model):
    """Zeros where a parameter has no gradient yet: scripts look at them before the first step."""
    sparse = _sparse_weights(model)
    for p in _flat_params(optimizer):
        if not p.requires_grad or p.grad is not None:
            continue
        p.grad = torch.zeros_like(p, requires_grad=False)
        if p in sparse or isinstance(optimizer, torch.optim.SparseAdam):
            p.grad = p.grad.to_sparse(1)


def broadcast_optimizer_state(
    optimizer: torch.optim.Optimizer, root_rank: int, model: torch.nn.Module | None = None
) -> None:
    """Give the optimizer of all ranks the root's state: learning rates, momenta, step counts.

    Ranks that have no state yet (the root resumed from a checkpoint, say) get it too. An optimizer
    that has not stepped gets gradients of zeros and stays as it is otherwise.
    """
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ValueError("cannot broadcast torch.optim.LBFGS state")
    if not optimizer.state:
        _make_gradients(optimizer, model)
    state, options = broadcast_object(
        _describe_state(optimizer), root_rank, name="broadcast_optimizer_state"
    )
    params = _flat_params(optimizer)
    tensors = []
    kept = set()
    for key, described in state.items():
        p = params[key] if isinstance(key, int) and key < len(params) else key
        kept.add(p)
        if not isinstance(described, dict):
            optimizer.state[p] = described
            continue

        def device(name, value, p=p):
            # Counters stay in host memory, as the optimizers themselves keep them.
            is_like = isinstance(p, torch.Tensor) and value.shape == tuple(p.shape)
            return p.device if is_like else "cpu"

        _adopt(optimizer.state[p], described, device, f"optimizer_state.{key}", tensors)
    for p in [p for p in optimizer.state if p not in kept]:
        del optimizer.state[p]
    for i, (group, described) in enumerate(zip(optimizer.param_groups, options, strict=True)):
        _adopt(group, described, lambda *_: "cpu", f"optimizer_option.{i}", tensors)
    broadcast_parameters(tensors, root_rank)


def _dump(obj):
    file = io.BytesIO()
    cloudpickle.dump(obj, file)
    return torch.frombuffer(bytearray(file.getvalue()), dtype=torch.uint8)


def _load(tensor):
    data = bytearray(tensor.numel())
    torch.frombuffer(data, dtype=torch.uint8).copy_(tensor)  # NumPy may be absent
    return cloudpickle.loads(data)


def broadcast_object(
    obj: Any,
    root_rank: int = 0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """The root's object on all ranks; anything that cloudpickle can carry."""
    name = name or "broadcast_object"
    is_root = rank() == root_rank
    data: Any = _dump(obj) if is_root else None
    count = torch.tensor([data.numel() if is_root else 0], dtype=torch.int64)
    broadcast_(count, root_rank, f"{name}.sz", process_set)
    if not is_root:
        data = torch.empty(int(count), dtype=torch.uint8)
    broadcast_(data, root_rank, f"{name}.t", process_set)
    return obj if is_root else _load(data)


def allgather_object(obj: Any, name: str | None = None) -> list:
    """A list of the objects of all ranks, by rank."""
    name = name or "allgather_object"
    data = _dump(obj)
    counts = allgather(torch.tensor([data.numel()], dtype=torch.int64), f"{name}.sz")
    gathered = allgather(data, f"{name}.t")
    assert len(counts) == size()
    return [_load(part) for part in torch.split(gathered, counts.tolist())]
