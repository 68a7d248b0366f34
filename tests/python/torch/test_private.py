# SPDX-License-Identifier: Apache-2.0
"""What we use of PyTorch that is not public, call by call, in the installed version.

To try another version, install it, add its row to TRIED and run this file. A call that is missing
is an empty place in the row; then `horovod.torch.private` must have something else to do.
"""

import ast
import datetime
from pathlib import Path

import horovod
import pytest
import torch
from horovod.torch import dynamo, private

CALLS = {"storage_uses", "current_backward", "at_end_of_backward", "is_nested_backward"}
CALLS |= {"skip_code", "call_as_is", "disable_compile", "BatchNormBase"}
CALLS |= {"Work", "premul_factor", "extend_monitored_barrier"}
# major.minor of PyTorch -> what it has
TRIED = {"2.13": CALLS}

VERSION = ".".join(torch.__version__.split(".")[:2])


def has(call):
    return call in TRIED.get(VERSION, ())


def needs(call):
    return pytest.mark.skipif(not has(call), reason=f"PyTorch {VERSION} has no {call}")


def test_this_version_was_tried():
    assert VERSION in TRIED, f"add a row for PyTorch {VERSION}"


def private_names(tree):
    """Attributes torch.*._x and imports of torch._x in a source file."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("torch."):
            parts = node.module.split(".") + [alias.name for alias in node.names]
        elif isinstance(node, ast.Attribute):
            parts, base = [node.attr], node.value
            while isinstance(base, ast.Attribute):
                parts.append(base.attr)
                base = base.value
            if not (isinstance(base, ast.Name) and base.id == "torch"):
                continue
        else:
            continue
        yield from (part for part in parts if part.startswith("_") and not part.startswith("__"))


def test_private_names_are_in_one_file():
    root = Path(horovod.__file__).parent
    found = {}
    for path in root.rglob("*.py"):
        names = set(private_names(ast.parse(path.read_text(encoding="utf-8"))))
        if names:
            found[path.relative_to(root).as_posix()] = names
    assert set(found) == {"torch/private.py"}, found


def test_every_call_is_listed():
    public = {
        name
        for name, value in vars(private).items()
        if callable(value) and not name.startswith("_") and name not in ("Any", "Callable")
    }
    assert public == CALLS


@needs("BatchNormBase")
def test_batch_norm_base():
    assert issubclass(torch.nn.BatchNorm2d, private.BatchNormBase)
    layer = private.BatchNormBase(3)
    assert layer.track_running_stats and layer.running_mean.shape == (3,)


@needs("storage_uses")
def test_storage_uses():
    tensor = torch.zeros(8)
    storage = tensor.untyped_storage()
    before = private.storage_uses(storage)
    view = tensor[2:]
    assert private.storage_uses(storage) == before + 1
    del view
    assert private.storage_uses(storage) == before


def test_storage_uses_where_it_is_missing(monkeypatch):
    monkeypatch.setattr(private, "_use_count", None)
    assert private.storage_uses(torch.zeros(2).untyped_storage()) == 0


@needs("current_backward")
def test_current_backward():
    seen = []
    p = torch.ones(2, requires_grad=True)
    p.register_hook(lambda grad: seen.append(private.current_backward()))
    assert private.current_backward() == -1
    p.sum().backward()
    p.sum().backward()
    assert seen[0] >= 0 and seen[1] > seen[0]
    assert private.current_backward() == -1
    assert private._no_backward() == -1


@needs("at_end_of_backward")
def test_at_end_of_backward():
    order = []
    a, b = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    for p in (a, b):

        def hook(_, p=p):
            order.append("grad")
            private.at_end_of_backward(lambda: order.append(p.grad is not None))

        p.register_post_accumulate_grad_hook(hook)
    (a * b).sum().backward()
    assert order == ["grad", "grad", True, True]


def test_outside_of_backward():
    with pytest.raises(RuntimeError):
        private.at_end_of_backward(lambda: None)


@needs("is_nested_backward")
def test_is_nested_backward(monkeypatch):
    seen = []
    inner = torch.ones(1, requires_grad=True)
    inner.register_hook(lambda grad: seen.append(private.is_nested_backward()))

    class Reentrant(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            with torch.enable_grad():
                (inner * 3).sum().backward()
            return grad * 2

    outer = torch.ones(1, requires_grad=True)
    (inner * 1).sum().backward()
    Reentrant.apply(outer).sum().backward()
    assert seen == [False, True]
    monkeypatch.setattr(private, "_BACKWARD_CODE", None)
    assert private.is_nested_backward() is False


def compiled(function):
    """(function compiled, list of the number of operations in each graph that was made)"""
    graphs = []

    def backend(graph, inputs):
        graphs.append(len(graph.graph.nodes))
        return graph.forward

    torch._dynamo.reset()
    return torch.compile(function, backend=backend), graphs


def test_plain_functions_are_compiled():
    run, graphs = compiled(lambda x: x + 1)
    assert run(torch.ones(2)).tolist() == [2, 2] and len(graphs) == 1


@needs("skip_code")
def test_skip_code():
    def outer(x):
        def inner(y):
            return y * 2

        return inner(x) + 1

    private.skip_code(outer.__code__)
    run, graphs = compiled(outer)
    assert run(torch.ones(2)).tolist() == [3, 3] and graphs == []


@needs("call_as_is")
def test_call_as_is():
    calls = []

    def ours(x):
        calls.append(type(x))
        return x * 3

    private.call_as_is(ours, "a test")
    assert ours._torchdynamo_disable_msg == "a test"
    run, graphs = compiled(lambda x: ours(x + 1) + 1)
    assert run(torch.ones(2)).tolist() == [7, 7]
    assert calls == [torch.Tensor] and len(graphs) == 2  # before our call and after it


@needs("disable_compile")
def test_disable_compile():
    calls = []

    @private.disable_compile
    def ours(x):
        calls.append(type(x))
        return x * 3

    run, graphs = compiled(lambda x: ours(x + 1) + 1)
    assert run(torch.ones(2)).tolist() == [7, 7]
    assert calls == [torch.Tensor] and len(graphs) == 2


def test_modules_are_marked():
    import horovod.torch as hvd

    assert hvd.allreduce._torchdynamo_disable and hvd.synchronize.__func__._torchdynamo_disable
    assert list(dynamo._functions(private, private.__name__))


def test_tensors_are_read_through_the_exchange_table():
    from horovod.torch import mpi_ops

    assert hasattr(torch.Tensor, "__dlpack_c_exchange_api__") == mpi_ops._HAS_EXCHANGE


@needs("Work")
def test_work():
    class Done(private.Work):
        def wait(self, timeout=None):
            return True

    assert Done().wait() is True


@needs("premul_factor")
def test_premul_factor():
    op = torch.distributed._make_nccl_premul_sum(2.5)
    assert private.premul_factor(op) == 2.5


@needs("extend_monitored_barrier")
def test_extend_monitored_barrier(monkeypatch):
    class Group:
        def monitored_barrier(self, timeout, wait_all_ranks):
            return timeout, wait_all_ranks

    original = torch.distributed.monitored_barrier
    monkeypatch.setattr(torch.distributed, "monitored_barrier", lambda *args: args)
    private.extend_monitored_barrier(Group)
    three, four = (datetime.timedelta(seconds=seconds) for seconds in (3, 4))
    assert torch.distributed.monitored_barrier(Group(), 3, True) == (three, True)
    other = object()
    assert torch.distributed.monitored_barrier(other, four, False) == (other, four, False)
    monkeypatch.undo()
    assert torch.distributed.monitored_barrier is original
