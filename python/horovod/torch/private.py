# SPDX-License-Identifier: Apache-2.0
"""Everything of PyTorch that is not part of its public interface, in one place.

A private call may be missing from, or mean something else in, another version of PyTorch. Nothing
else in this package touches one. Each has a test in tests/python/torch/test_private.py, which also
lists the versions that were tried, and each has something to do where the call is missing, so that
an unknown version costs speed or convenience, not correctness.
"""

import datetime
import sys
import types
from collections.abc import Callable
from typing import Any

import torch

try:
    from torch._C._dynamo import eval_frame as _eval_frame
except ImportError:
    _eval_frame = None


# ---- layers ----

# What nn.BatchNorm1d and its sisters are made from.
BatchNormBase: Any = torch.nn.modules.batchnorm._BatchNorm


# ---- memory ----

_use_count = getattr(torch._C, "_storage_Use_Count", None)


def storage_uses(storage: torch.UntypedStorage) -> int:
    """How many tensors show a storage; 0 where PyTorch does not tell."""
    return _use_count(storage._cdata) if _use_count is not None else 0


# ---- backward ----


def _no_backward() -> int:
    return -1


# The number of the backward pass that calls us; -1 outside of one. Where PyTorch does not tell,
# gradients are reduced in step() instead of at the end of backward.
current_backward: Callable[[], int] = getattr(torch._C, "_current_graph_task_id", _no_backward)

_BACKWARD_CODE = getattr(
    getattr(torch.autograd.graph, "_engine_run_backward", None), "__code__", None
)


def at_end_of_backward(function: Callable[[], None]) -> None:
    """Call a function when the backward pass that calls us has computed all gradients."""
    torch.autograd.Variable._execution_engine.queue_callback(function)


def is_nested_backward() -> bool:
    """Are we inside a backward that another backward called (re-entrant checkpointing)?"""
    if _BACKWARD_CODE is None:
        return False
    depth = 0
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None:
        depth += frame.f_code is _BACKWARD_CODE
        frame = frame.f_back
    return depth > 1


# ---- torch.compile ----


def _skip_strategy() -> Any:
    """What tells the compiler to leave a frame and all below it alone; None: it can't be told."""
    action = getattr(_eval_frame, "_FrameAction", None)
    strategy = getattr(_eval_frame, "_FrameExecStrategy", None)
    if action is None or strategy is None or not hasattr(_eval_frame, "set_code_exec_strategy"):
        return None
    return strategy(action.SKIP, action.SKIP)


_SKIP = _skip_strategy()


def skip_code(code: types.CodeType) -> None:
    """The compiler does not look into frames of this code, nor of the code inside it."""
    if _SKIP is not None:
        _eval_frame.set_code_exec_strategy(code, _SKIP)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            skip_code(constant)


def call_as_is(function: types.FunctionType, why: str) -> None:
    """Compiled code calls the function as it is. Does not import the compiler."""
    function._torchdynamo_disable = True  # type: ignore[attr-defined]
    function._torchdynamo_disable_msg = why  # type: ignore[attr-defined]
    skip_code(function.__code__)


def disable_compile(function: Callable) -> Callable:
    """A decorator: compiled code goes around the function. Imports the compiler."""
    return torch._dynamo.disable(function)


# ---- torch.distributed ----

# What a Python class inherits from to be the result of a collective.
Work: Any = getattr(torch.distributed, "_Work", None) or torch.distributed.Work


def premul_factor(op: Any) -> Any:
    """The factor of ReduceOp.PREMUL_SUM: a number or a tensor."""
    return op.__getstate__()[1]


def extend_monitored_barrier(kind: type) -> None:
    """dist.monitored_barrier() refuses every backend but gloo; groups of this class do it too."""
    original = torch.distributed.monitored_barrier
    if getattr(original, "is_extended", False):
        return

    def monitored_barrier(
        group: Any = None, timeout: Any = None, wait_all_ranks: bool = False
    ) -> Any:
        """The same as before, and for groups of the horovod backend."""
        world = torch.distributed.group.WORLD
        own = group if group is not None else world
        if isinstance(timeout, (int, float)):
            timeout = datetime.timedelta(seconds=timeout)
        if isinstance(own, kind):
            return own.monitored_barrier(timeout, wait_all_ranks)  # type: ignore[attr-defined]
        return original(group, timeout, wait_all_ranks)

    monitored_barrier.is_extended = True  # type: ignore[attr-defined]
    torch.distributed.monitored_barrier = monitored_barrier
