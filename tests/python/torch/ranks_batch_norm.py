# SPDX-License-Identifier: Apache-2.0
"""SyncBatchNorm against one process that has the batches of all ranks."""

import horovod.torch as hvd
import pytest
import torch
from torch import nn

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
CHANNELS = 3

# Batches of different sizes: rank 0 has one sample, the others more.
EVEN = [4] * SIZE
UNEVEN = [1 + 3 * rank for rank in range(SIZE)] if SIZE > 1 else [4]
# One rank has no sample at all.
EMPTY = [5] * (SIZE - 1) + [0] if SIZE > 1 else [4]

PLAIN = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}


def make(dims, counts, dtype=torch.float32):
    """(all ranks' samples, weights of their outputs in the loss, the slice that is ours)."""
    torch.manual_seed(1)
    shape = (sum(counts), CHANNELS, *[2, 3, 2][: dims - 2])
    start = sum(counts[:RANK])
    batch = torch.randn(shape) * 3 + 5
    return batch.to(dtype), torch.randn(shape).to(dtype), slice(start, start + counts[RANK])


def make_layers(dims, is_scripted, **options):
    layer, plain = hvd.SyncBatchNorm(CHANNELS, **options), PLAIN[dims](CHANNELS, **options)
    for module in (layer, plain):
        if module.affine:
            with torch.no_grad():
                module.weight.copy_(torch.tensor([1.5, 0.5, -2.0]))
                module.bias.copy_(torch.tensor([0.5, 0.0, 1.0]))
    return (torch.jit.script(layer) if is_scripted else layer), plain


def train(module, batch, weights):
    x = batch.clone().requires_grad_()
    module.zero_grad()
    out = module(x)
    (out * weights).sum().backward()
    return out.detach(), x.grad


def compare(dims, counts, is_scripted, dtype=torch.float32, rtol=1e-3, atol=1e-4, **options):
    layer, plain = make_layers(dims, is_scripted, **options)
    if dtype is torch.float64:
        layer, plain = layer.double(), plain.double()
    batch, weights, mine = make(dims, counts, dtype)
    near = {"rtol": rtol, "atol": atol}
    for step in range(3):
        out, grad = train(layer, (batch + step)[mine], weights[mine])
        expected, expected_grad = train(plain, batch + step, weights)
        assert out.dtype == dtype and grad.dtype == dtype
        torch.testing.assert_close(out, expected[mine], **near)
        torch.testing.assert_close(grad, expected_grad[mine], **near)
        if plain.affine:
            for name in ("weight", "bias"):
                total = hvd.allreduce(getattr(layer, name).grad, op=hvd.Sum)
                torch.testing.assert_close(total, getattr(plain, name).grad, rtol=rtol, atol=1e-3)
    if plain.track_running_stats:
        torch.testing.assert_close(layer.running_mean, plain.running_mean, **near)
        torch.testing.assert_close(layer.running_var, plain.running_var, **near)
        assert layer.num_batches_tracked == plain.num_batches_tracked == 3
    else:
        assert layer.running_mean is None and layer.running_var is None
    layer.eval()
    plain.eval()
    torch.testing.assert_close(layer(batch[mine]), plain(batch)[mine], **near)
    if plain.track_running_stats:
        assert layer.num_batches_tracked == 3


@pytest.mark.parametrize("is_scripted", [False, True], ids=["eager", "script"])
@pytest.mark.parametrize("counts", [EVEN, UNEVEN, EMPTY], ids=["even", "uneven", "empty"])
@pytest.mark.parametrize("dims", [2, 3, 4, 5])
def test_dimensions(dims, counts, is_scripted):
    compare(dims, counts, is_scripted)


@pytest.mark.parametrize("is_scripted", [False, True], ids=["eager", "script"])
@pytest.mark.parametrize(
    "options",
    [
        {"momentum": None},
        {"momentum": 0.0},
        {"momentum": 1.0},
        {"affine": False},
        {"track_running_stats": False},
        {"affine": False, "track_running_stats": False},
        {"eps": 0.1},
    ],
    ids=str,
)
def test_options(options, is_scripted):
    compare(4, UNEVEN, is_scripted, **options)


@pytest.mark.parametrize("is_scripted", [False, True], ids=["eager", "script"])
def test_types(is_scripted):
    compare(4, UNEVEN, is_scripted, torch.float64, 1e-9, 1e-9)
    # bfloat16 has 8 bits; a gradient is a difference of larger numbers.
    compare(4, UNEVEN, is_scripted, torch.bfloat16, 2e-2, 6e-2)


@pytest.mark.parametrize("is_scripted", [False, True], ids=["eager", "script"])
def test_a_large_mean_does_not_spoil_the_variance(is_scripted):
    layer, plain = make_layers(2, is_scripted, affine=False)
    batch, weights, mine = make(2, UNEVEN)
    out, _ = train(layer, (batch + 3e4)[mine], weights[mine])
    expected, _ = train(plain.double(), (batch + 3e4).double(), weights.double())
    torch.testing.assert_close(out.double(), expected[mine], rtol=1e-2, atol=1e-2)


def test_layers_in_a_scripted_network_and_in_a_file(tmp_path):
    torch.manual_seed(2)
    parts = [nn.Conv2d(2, CHANNELS, 1), hvd.SyncBatchNorm(CHANNELS), nn.ReLU(), nn.Flatten()]
    model = nn.Sequential(*parts, nn.Linear(CHANNELS * 4, 1))
    scripted = torch.jit.script(model)
    torch.manual_seed(3 + RANK)
    x = torch.randn(2 + RANK, 2, 2, 2)
    for _ in range(4):  # the executor of scripts specialises after some calls
        model.zero_grad()
        eager = model(x)
        eager.sum().backward()
        expected = [p.grad.clone() for p in model.parameters()]
        scripted.zero_grad()
        out = scripted(x)
        out.sum().backward()
        torch.testing.assert_close(out, eager)
        for parameter, grad in zip(scripted.parameters(), expected, strict=True):
            torch.testing.assert_close(parameter.grad, grad)
    scripted.eval()
    path = tmp_path / "model.pt"
    torch.jit.save(scripted, str(path))
    torch.testing.assert_close(torch.jit.load(str(path))(x), scripted(x))


def test_wrong_input():
    layer = hvd.SyncBatchNorm(CHANNELS)
    for is_training in (True, False):
        layer.train(is_training)
        with pytest.raises(ValueError, match=r"expected at least 2D input \(got 1D input\)"):
            layer(torch.ones(CHANNELS))
    with pytest.raises(TypeError):
        hvd.SyncBatchNorm(CHANNELS, process_set=hvd.global_process_set)


def test_no_second_derivative():
    """An error, where treating saved values as constants would give wrong numbers."""
    if SIZE == 1:
        pytest.skip("one rank uses PyTorch's own, which has it")
    layer = hvd.SyncBatchNorm(CHANNELS)
    x = torch.randn(4, CHANNELS, requires_grad=True)
    (grad,) = torch.autograd.grad(layer(x).square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        grad.sum().backward()
