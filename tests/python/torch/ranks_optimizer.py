# SPDX-License-Identifier: Apache-2.0
"""DistributedOptimizer: every argument, every optimizer class, and what users do to gradients."""

import copy
import gc
import inspect
import warnings

import horovod.torch as hvd
import pytest
import torch
import torch.nn.functional as F
from horovod.common.library import native
from optimizers import CLASSES, overlap_if_told
from torch import nn
from torch.utils.checkpoint import checkpoint

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
BATCH = 12  # of all ranks together: divisible by 1, 2, 3, 4

overlap_if_told(RANK)


def make_model(seed=7):
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(64, 8), nn.Linear(8, 3)
    )


def make_batch(step):
    """(this rank's part, everything)."""
    generator = torch.Generator().manual_seed(step)
    x = torch.randn(BATCH, 1, 4, 4, generator=generator)
    y = torch.randint(0, 3, (BATCH,), generator=generator)
    share = BATCH // SIZE
    mine = slice(RANK * share, (RANK + 1) * share)
    return (x[mine], y[mine]), (x, y)


def loss_of(model, batch):
    return F.cross_entropy(model(batch[0]), batch[1])


def gradients(model):
    return [p.grad for p in model.parameters()]


def same_everywhere(model):
    """Are the weights bit for bit equal on all ranks?"""
    for p in model.parameters():
        gathered = hvd.allgather(p.detach().reshape(1, -1))
        for row in gathered:
            assert torch.equal(row, gathered[0])


def wrap(model, optimizer=None, **options):
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    options.setdefault("named_parameters", model.named_parameters())
    return hvd.DistributedOptimizer(optimizer, **options)


def make_pair():
    """(model, its wrapped optimizer, the same model, its optimizer for one process)"""
    model, alone = make_model(), make_model()
    reference = torch.optim.SGD(alone.parameters(), lr=0.1, momentum=0.9)
    return model, wrap(model), alone, reference


def reference_gradients(step, model=None):
    """The gradient of the whole batch, computed alone."""
    model = make_model() if model is None else copy.deepcopy(model)
    model.zero_grad()
    loss_of(model, make_batch(step)[1]).backward()
    return gradients(model)


def close(actual, expected, factor=1.0, **tolerance):
    for a, e in zip(actual, expected, strict=True):
        torch.testing.assert_close(a, e * factor, **tolerance)


# ---- training ----


def test_same_curve_as_one_process():
    model, optimizer, alone, reference = make_pair()
    for step in range(100):
        mine, everything = make_batch(step)
        optimizer.zero_grad()
        loss_of(model, mine).backward()
        optimizer.step()
        reference.zero_grad()
        loss_of(alone, everything).backward()
        reference.step()
    close(list(model.parameters()), list(alone.parameters()), rtol=1e-3, atol=1e-4)
    same_everywhere(model)


@pytest.mark.parametrize("name", CLASSES)
def test_every_optimizer_class(name):
    cls = getattr(torch.optim, name)
    model = nn.Linear(4, 4, bias=False) if name == "Muon" else make_model()
    alone = copy.deepcopy(model)
    options = {"lr": 0.01} if "lr" in inspect.signature(cls).parameters else {}
    optimizer = wrap(model, cls(model.parameters(), **options))
    reference = cls(alone.parameters(), **options)
    assert isinstance(optimizer, cls)
    assert type(optimizer).__name__ == name
    assert type(optimizer).__module__ == "horovod.torch.optimizer"
    for step in range(3):
        if name == "Muon":
            x = torch.randn(BATCH, 4, generator=torch.Generator().manual_seed(step))
            y = torch.zeros(BATCH, dtype=torch.long)
            share = BATCH // SIZE
            mine = (x[RANK * share :][:share], y[:share])
            everything = (x, y)
        else:
            mine, everything = make_batch(step)
        for m, o, batch in ((model, optimizer, mine), (alone, reference, everything)):
            o.zero_grad()
            loss_of(m, batch).backward()
            o.step()
    close(list(model.parameters()), list(alone.parameters()), rtol=1e-2, atol=1e-2)
    same_everywhere(model)
    assert optimizer.state_dict().keys() == reference.state_dict().keys()
    optimizer.load_state_dict(optimizer.state_dict())


@pytest.mark.parametrize("compression", ["none", "fp16", "bf16"])
@pytest.mark.parametrize("groups", [None, 1, 2, "list"])
@pytest.mark.parametrize("predivide", [1.0, 4.0])
def test_options(compression, groups, predivide):
    model = make_model()
    if groups == "list":
        parameters = list(model.parameters())
        groups = [parameters[:2], parameters[3:5]]
    optimizer = wrap(
        model,
        compression=getattr(hvd.Compression, compression),
        groups=groups,
        gradient_predivide_factor=predivide,
    )
    tolerance = {"none": 1e-5, "fp16": 1e-2, "bf16": 5e-2}[compression]
    for step in range(3):
        optimizer.zero_grad()
        expected = reference_gradients(step, model)
        loss_of(model, make_batch(step)[0]).backward()
        close(gradients(model), expected, rtol=tolerance, atol=tolerance)
        optimizer.step()
        close(gradients(model), expected, rtol=tolerance, atol=tolerance)
    same_everywhere(model)


def test_sum():
    model = make_model()
    optimizer = wrap(model, op=hvd.Sum)
    expected = reference_gradients(0)
    loss_of(model, make_batch(0)[0]).backward()
    optimizer.step()
    close(gradients(model), expected, SIZE)


class Halver(hvd.compression.Compressor if hasattr(hvd, "compression") else object):
    """A compressor of a user's own."""

    @staticmethod
    def compress(tensor):
        return tensor * 0.5, "context"

    @staticmethod
    def decompress(tensor, ctx):
        assert ctx == "context"
        return tensor * 2.0


@pytest.mark.parametrize("groups", [None, 2])
def test_own_compressor(groups):
    model = make_model()
    optimizer = wrap(model, compression=Halver, groups=groups)
    expected = reference_gradients(0)
    loss_of(model, make_batch(0)[0]).backward()
    optimizer.step()
    close(gradients(model), expected)


def test_adasum():
    if SIZE & (SIZE - 1):
        pytest.skip("Adasum needs a power of two")
    model = make_model()
    optimizer = wrap(model, torch.optim.SGD(model.parameters(), lr=0.1), op=hvd.Adasum)
    before = [p.detach().clone() for p in model.parameters()]
    for step in range(3):
        optimizer.zero_grad()
        loss_of(model, make_batch(step)[0]).backward()
        optimizer.step()
    assert any(not torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    same_everywhere(model)
    if SIZE > 1:
        with pytest.raises(AssertionError, match="Skipping synchronization is not supported"):
            optimizer.skip_synchronize()


# ---- gradients are ready after backward ----


def test_reduced_after_backward():
    model = make_model()
    optimizer = wrap(model)
    for step in range(2):
        optimizer.zero_grad()
        expected = reference_gradients(step, model)
        loss_of(model, make_batch(step)[0]).backward()
        close(gradients(model), expected, rtol=1e-4, atol=1e-5)
        optimizer.step()


def test_clipping():
    model, optimizer, alone, reference = make_pair()
    for step in range(3):
        mine, everything = make_batch(step)
        for m, o, batch in ((model, optimizer, mine), (alone, reference, everything)):
            o.zero_grad()
            loss_of(m, batch).backward()
            nn.utils.clip_grad_norm_(m.parameters(), 0.01)
            o.step()
    close(list(model.parameters()), list(alone.parameters()), rtol=1e-4, atol=1e-5)
    same_everywhere(model)


def test_clipping_the_old_way():
    model, optimizer, alone, reference = make_pair()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for step in range(3):
            mine, everything = make_batch(step)
            optimizer.zero_grad()
            loss_of(model, mine).backward()
            optimizer.synchronize()
            nn.utils.clip_grad_norm_(model.parameters(), 0.01)
            with optimizer.skip_synchronize():
                optimizer.step()
            reference.zero_grad()
            loss_of(alone, everything).backward()
            nn.utils.clip_grad_norm_(alone.parameters(), 0.01)
            reference.step()
    close(list(model.parameters()), list(alone.parameters()), rtol=1e-4, atol=1e-5)


def test_step_after_synchronize_warns_once():
    model = make_model()
    optimizer = wrap(model)
    loss_of(model, make_batch(0)[0]).backward()
    optimizer.synchronize()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        optimizer.step()
    texts = [str(w.message) for w in caught]
    assert (
        sum("optimizer.step() called without optimizer.skip_synchronize()" in t for t in texts) == 1
    )


def test_grad_scaler():
    model, optimizer, alone, reference = make_pair()
    scalers = [torch.amp.GradScaler("cpu", init_scale=8.0) for _ in range(2)]
    for step in range(6):
        mine, everything = make_batch(step)
        for m, o, batch, scaler in (
            (model, optimizer, mine, scalers[0]),
            (alone, reference, everything, scalers[1]),
        ):
            o.zero_grad()
            loss = loss_of(m, batch)
            if step == 2:
                loss = loss * float("inf")  # the scaler skips this step
            scaler.scale(loss).backward()
            scaler.unscale_(o)
            nn.utils.clip_grad_norm_(m.parameters(), 1.0)
            scaler.step(o)
            scaler.update()
    assert scalers[0].get_scale() == scalers[1].get_scale()
    close(list(model.parameters()), list(alone.parameters()), rtol=1e-3, atol=1e-4)
    same_everywhere(model)


# ---- several passes ----


@pytest.mark.parametrize("groups", [None, 2])
def test_backward_passes_per_step(groups):
    model = make_model()
    optimizer = wrap(model, backward_passes_per_step=3, groups=groups)
    for round_ in range(2):
        optimizer.zero_grad()
        before = native.stats()["ops_completed"]
        for i in range(3):
            if i == 2 and not groups:
                assert native.stats()["ops_completed"] == before
            loss_of(model, make_batch(3 * round_ + i)[0]).backward()
        expected = [
            sum(parts)
            for parts in zip(
                *(reference_gradients(3 * round_ + i, model) for i in range(3)), strict=True
            )
        ]
        optimizer.step()
        close(gradients(model), expected, rtol=1e-4, atol=1e-5)
    same_everywhere(model)


def test_remainder_of_an_accumulation():
    model = make_model()
    optimizer = wrap(model, backward_passes_per_step=4)
    for passes in (4, 2, 4, 1):
        optimizer.zero_grad()
        expected = [0.0] * 6
        for i in range(passes):
            expected = [e + g for e, g in zip(expected, reference_gradients(i, model), strict=True)]
            loss_of(model, make_batch(i)[0]).backward()
        optimizer.step()
        close(gradients(model), expected, rtol=1e-4, atol=1e-5)
    # Passes that are thrown away, too.
    loss_of(model, make_batch(0)[0]).backward()
    optimizer.zero_grad()
    for i in range(4):
        loss_of(model, make_batch(i)[0]).backward()
    optimizer.step()
    same_everywhere(model)


@pytest.mark.parametrize("set_to_none", [True, False])
def test_more_passes_than_announced(set_to_none):
    model = make_model()
    optimizer = wrap(model)
    for _ in range(2):
        optimizer.zero_grad(set_to_none=set_to_none)
        expected = [
            a + b
            for a, b in zip(
                reference_gradients(0, model), reference_gradients(1, model), strict=True
            )
        ]
        loss = loss_of(model, make_batch(0)[0])
        loss.backward(retain_graph=True)
        loss_of(model, make_batch(1)[0]).backward()
        close(gradients(model), expected, rtol=1e-4, atol=1e-5)
        optimizer.step()
        close(gradients(model), expected, rtol=1e-4, atol=1e-5)
    same_everywhere(model)


def test_more_passes_than_announced_of_a_sum():
    model = make_model()
    optimizer = wrap(model, op=hvd.Sum)
    expected = [a + b for a, b in zip(reference_gradients(0), reference_gradients(1), strict=True)]
    for step in range(2):
        loss_of(model, make_batch(step)[0]).backward()
    close(gradients(model), expected, SIZE, rtol=1e-4, atol=1e-5)
    optimizer.step()
    close(gradients(model), expected, SIZE, rtol=1e-4, atol=1e-5)


def test_retain_graph():
    model = make_model()
    optimizer = wrap(model, backward_passes_per_step=2)
    loss = loss_of(model, make_batch(0)[0])
    loss.backward(retain_graph=True)
    loss.backward()
    optimizer.step()
    close(gradients(model), reference_gradients(0), 2.0, rtol=1e-4, atol=1e-5)


def test_two_losses_over_different_parameters():
    torch.manual_seed(3)
    a, b = nn.Linear(3, 2), nn.Linear(3, 2)
    both = nn.ModuleList([a, b])
    optimizer = wrap(both)
    x = torch.full((2, 3), RANK + 1.0)
    mean = (SIZE + 1) / 2
    a(x).sum().backward()
    b(2 * x).sum().backward()
    optimizer.step()
    torch.testing.assert_close(a.weight.grad, torch.full((2, 3), 2 * mean))
    torch.testing.assert_close(b.weight.grad, torch.full((2, 3), 4 * mean))


# ---- what users do to gradients ----


@pytest.mark.parametrize("how", ["none", "zero", "model", "delete", "replace", "in_place"])
def test_gradients_in_users_hands(how):
    model = make_model()
    optimizer = wrap(model)
    for step in range(3):
        if how == "none":
            optimizer.zero_grad()
        elif how == "zero":
            optimizer.zero_grad(set_to_none=False)
        elif how == "model":
            model.zero_grad()
        elif how == "delete":
            for p in model.parameters():
                p.grad = None
        elif how == "replace":
            for p in model.parameters():
                p.grad = torch.zeros_like(p)
        else:
            for p in model.parameters():
                if p.grad is not None:
                    p.grad.mul_(0)
        expected = reference_gradients(step, model)
        loss_of(model, make_batch(step)[0]).backward()
        close(gradients(model), expected, rtol=1e-4, atol=1e-5)
        optimizer.step()
    same_everywhere(model)


def test_gradients_set_to_none_before_step():
    model = make_model()
    optimizer = wrap(model)
    loss_of(model, make_batch(0)[0]).backward()
    before = [p.detach().clone() for p in model.parameters()]
    model.zero_grad()
    optimizer.step()
    for a, b in zip(before, model.parameters(), strict=True):
        torch.testing.assert_close(a, b.detach())
    optimizer.zero_grad()
    loss_of(model, make_batch(0)[0]).backward()
    optimizer.step()
    same_everywhere(model)


def test_parameters_that_only_some_ranks_use():
    if SIZE == 1:
        pytest.skip("one rank reduces nothing")
    torch.manual_seed(5)
    layers = nn.ModuleList([nn.Linear(2, 2, bias=False) for _ in range(SIZE + 2)])
    optimizer = wrap(layers)
    for _ in range(3):
        optimizer.zero_grad()
        x = torch.ones(1, 2)
        (layers[SIZE](x) + layers[RANK](x)).sum().backward()
        optimizer.step()
        for i, layer in enumerate(layers):
            expected = 1.0 / SIZE if i < SIZE else (1.0 if i == SIZE else 0.0)
            torch.testing.assert_close(layer.weight.grad, torch.full((2, 2), expected))
    same_everywhere(layers)


def test_step_without_backward():
    model = make_model()
    optimizer = wrap(model)
    optimizer.step()
    same_everywhere(model)


def test_toggled_requires_grad():
    torch.manual_seed(11)
    first, second = nn.Linear(3, 3), nn.Linear(3, 1)
    both = nn.Sequential(first, second)
    optimizer = wrap(both)
    for step in range(4):
        frozen, free = (first, second) if step % 2 else (second, first)
        for p in frozen.parameters():
            p.requires_grad_(False)
        for p in free.parameters():
            p.requires_grad_(True)
        optimizer.zero_grad()
        both(torch.full((2, 3), RANK + 1.0)).sum().backward()
        optimizer.step()
    same_everywhere(both)


def test_gan():
    torch.manual_seed(13)
    g, d = nn.Linear(4, 4), nn.Linear(4, 1)
    opt_g = wrap(g, torch.optim.Adam(g.parameters(), lr=0.01))
    opt_d = wrap(
        d,
        torch.optim.Adam(d.parameters(), lr=0.01),
        named_parameters=[(f"d.{n}", p) for n, p in d.named_parameters()],
    )
    for _step in range(5):
        real, noise = torch.randn(3, 4) + RANK, torch.randn(3, 4)
        d.zero_grad()
        d(real).mean().backward()  # two passes, as in the well-known example
        (-d(g(noise).detach()).mean()).backward()
        opt_d.step()
        g.zero_grad()
        d(g(noise)).mean().backward()  # reaches the gradients of d as well
        opt_g.step()
    same_everywhere(g)
    same_everywhere(d)


def test_sparse():
    for sparse_as_dense in (False, True):
        torch.manual_seed(17)
        model = nn.Sequential(nn.Embedding(10, 3, sparse=True), nn.Linear(3, 1))
        alone = copy.deepcopy(model)
        sgd = torch.optim.SGD
        optimizer = wrap(model, sgd(model.parameters(), lr=0.1), sparse_as_dense=sparse_as_dense)
        reference = sgd(alone.parameters(), lr=0.1)
        for step in range(3):
            rows = torch.tensor([[r, 9, 9, step] for r in range(SIZE)])
            optimizer.zero_grad()
            model(rows[RANK : RANK + 1]).mean().backward()
            optimizer.step()
            reference.zero_grad()
            alone(rows).mean().backward()
            reference.step()
            assert model[0].weight.grad.is_sparse
        close(list(model.parameters()), list(alone.parameters()))
        same_everywhere(model)
    model = nn.Embedding(10, 3, sparse=True)
    optimizer = wrap(model, torch.optim.SparseAdam(list(model.parameters()), lr=0.1))
    for _step in range(2):
        optimizer.zero_grad()
        if RANK == 0 or _step == 0:  # later only one rank has a gradient
            model(torch.tensor([RANK])).sum().backward()
        optimizer.step()
    same_everywhere(model)


def test_layouts_and_dtypes():
    torch.manual_seed(19)
    model = nn.Sequential(nn.Conv2d(2, 4, 3), nn.Flatten(), nn.Linear(4 * 4, 2)).to(
        memory_format=torch.channels_last
    )
    optimizer = wrap(model)
    x = torch.ones(2, 2, 4, 4) * (RANK + 1)
    alone = copy.deepcopy(model)
    for _step in range(3):
        optimizer.zero_grad()
        model(x.to(memory_format=torch.channels_last)).sum().backward()
        optimizer.step()
    alone(torch.ones(2, 2, 4, 4) * (SIZE + 1) / 2).sum().backward()
    same_everywhere(model)
    for dtype in (torch.float64, torch.bfloat16):
        model = make_model().to(dtype)
        optimizer = wrap(model)
        (x, y), _ = make_batch(0)
        loss_of(model, (x.to(dtype), y)).backward()
        optimizer.step()
        same_everywhere(model)
    # A model that changes its dtype later on.
    model = make_model()
    optimizer = wrap(model, torch.optim.SGD(model.parameters(), lr=0.1))
    loss_of(model, make_batch(0)[0]).backward()
    optimizer.step()
    optimizer.zero_grad()
    model.double()
    (x, y), _ = make_batch(1)
    loss_of(model, (x.double(), y)).backward()
    optimizer.step()
    assert all(g.dtype == torch.float64 for g in gradients(model))
    same_everywhere(model)


def test_views_and_odd_parameters():
    model = nn.Module()
    model.scalar = nn.Parameter(torch.tensor(1.0))
    model.empty = nn.Parameter(torch.empty(0, 3))
    model.transposed = nn.Parameter(torch.ones(2, 3).t())
    model.strided = nn.Parameter(torch.ones(4, 4)[:, ::2])
    optimizer = wrap(model, torch.optim.SGD(model.parameters(), lr=1.0))
    for _step in range(2):
        optimizer.zero_grad()
        total = sum((p * (RANK + 1)).sum() for p in model.parameters())
        total.backward()
        optimizer.step()
        for p in model.parameters():
            assert p.grad.eq((SIZE + 1) / 2).all()


def test_create_graph():
    model = nn.Linear(2, 1)
    optimizer = wrap(model)
    loss = model(torch.ones(1, 2) * (RANK + 1)).square().sum()
    loss.backward(create_graph=True)
    optimizer.step()
    optimizer.zero_grad()
    x = torch.ones(1, 2, requires_grad=True)
    (grad,) = torch.autograd.grad(model(x).square().sum(), x, create_graph=True)
    grad.square().sum().backward()
    optimizer.step()
    same_everywhere(model)


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_checkpointing(use_reentrant):
    torch.manual_seed(23)
    layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(4)])
    optimizer = wrap(layers)

    def forward(model, x):
        x = model[0](x)
        for layer in model[1:3]:
            x = checkpoint(layer, x, use_reentrant=use_reentrant)
        return model[3](x).sum()

    alone = copy.deepcopy(layers)
    for _step in range(2):
        optimizer.zero_grad()
        before = native.stats()["ops_completed"]
        forward(layers, torch.full((1, 4), RANK + 1.0)).backward()
        assert native.stats()["ops_completed"] - before <= 8  # one per parameter
        optimizer.step()
    forward(alone, torch.full((1, 4), (SIZE + 1) / 2)).backward()
    same_everywhere(layers)


# ---- arguments and attributes ----


def test_arguments():
    model = nn.Linear(2, 2)
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    named = list(model.named_parameters())
    texts = {
        "sequence of tuples": {"named_parameters": model.parameters()},
        "usually produced by model.named_parameters": {"named_parameters": dict(named)},
        "must be unique. Found duplicates: a": {
            "named_parameters": [("a", named[0][1]), ("a", named[1][1])]
        },
        "were not named. Python object ids": {"named_parameters": named[:1]},
        "backward_passes_per_step must be > 0": {"backward_passes_per_step": 0},
        "not supported with op != Average": {"gradient_predivide_factor": 2.0, "op": hvd.Sum},
        "non-negative integer or a list of list": {"groups": 0},
        "groups must consist of torch.Tensor": {"groups": [["a"]]},
        "can only appear once in groups": {"groups": [[named[0][1]], [named[0][1]]]},
    }
    for text, options in texts.items():
        with pytest.raises(ValueError, match=text):
            hvd.DistributedOptimizer(sgd, **options)
    with pytest.raises(TypeError):
        hvd.DistributedOptimizer(sgd, groups=(1,))
    with pytest.warns(DeprecationWarning, match="`num_groups` has been replaced by `groups`"):
        hvd.DistributedOptimizer(sgd, num_groups=1)
    wrapped = hvd.DistributedOptimizer(sgd)
    assert set(wrapped._parameter_names.values()) == {
        "allreduce.noname.0.0",
        "allreduce.noname.0.1",
    }
    with pytest.raises(TypeError):
        hvd.DistributedOptimizer(wrapped)


def test_shared_groups_and_schedulers():
    model = make_model()
    raw = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = wrap(model, raw)
    assert optimizer.param_groups[0] is raw.param_groups[0]
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)
    loss_of(model, make_batch(0)[0]).backward()
    optimizer.step()
    scheduler.step()
    assert raw.param_groups[0]["lr"] == 0.05
    torch.optim.lr_scheduler.CosineAnnealingLR(raw, 10)
    assert set(optimizer.state_dict()) == {"state", "param_groups"}


def test_checkpoint_of_rank_0(tmp_path):
    """Written and loaded by rank 0, sent to the others: training goes on as if never broken."""

    def train(model, optimizer, steps):
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.9)
        for step in steps:
            optimizer.zero_grad()
            loss_of(model, make_batch(step)[0]).backward()
            optimizer.step()
            scheduler.step()

    def adam(model):
        return torch.optim.Adam(model.parameters(), lr=0.01)

    path = tmp_path / "checkpoint.pt"
    unbroken = make_model()
    train(unbroken, optimizer := wrap(unbroken, adam(unbroken)), range(3))
    if RANK == 0:
        torch.save({"model": unbroken.state_dict(), "optimizer": optimizer.state_dict()}, path)
    train(unbroken, optimizer, range(3, 5))
    hvd.barrier()
    resumed = make_model(seed=RANK)
    raw = adam(resumed)
    if RANK == 0:
        checkpoint_ = torch.load(path, weights_only=True)
        resumed.load_state_dict(checkpoint_["model"])
        raw.load_state_dict(checkpoint_["optimizer"])
    resumed_optimizer = wrap(resumed, raw)
    resumed_optimizer.load_state_dict(raw.state_dict())
    hvd.broadcast_parameters(resumed.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(resumed_optimizer, root_rank=0)
    train(resumed, resumed_optimizer, range(3, 5))
    for a, b in zip(resumed.parameters(), unbroken.parameters(), strict=True):
        assert torch.equal(a, b)
    same_everywhere(resumed)


def test_closure():
    model = make_model()
    optimizer = wrap(model)

    def closure():
        optimizer.zero_grad()
        loss = loss_of(model, make_batch(0)[0])
        loss.backward()
        return loss

    for _ in range(2):
        assert optimizer.step(closure) is not None
        optimizer.zero_grad()
    same_everywhere(model)


def test_a_second_optimizer_of_the_same_model():
    model = make_model()
    for _ in range(3):
        optimizer = wrap(model)
        loss_of(model, make_batch(0)[0]).backward()
        optimizer.step()
        optimizer.zero_grad()
        del optimizer
        gc.collect()


def test_gradients_lie_in_shared_memory(monkeypatch):
    model = make_model()
    optimizer = wrap(model)
    loss_of(model, make_batch(0)[0]).backward()
    optimizer.step()
    has_arena = native.alloc(native.FLOAT32, (16,)) is not None
    assert all(native.is_shared(grad) == has_arena for grad in gradients(model))
    first = [g.data_ptr() for g in gradients(model)]
    optimizer.zero_grad()
    loss_of(model, make_batch(0)[0]).backward()
    if has_arena:
        assert first == [g.data_ptr() for g in gradients(model)]


@pytest.mark.parametrize("count", [0, 1, 17, 4095, 4096, 100_003, 1 << 20])
def test_copy(count):
    source = torch.randn(count + 1)[1:]  # not aligned
    target = torch.zeros(count + 3)
    assert native.copy(target[2 : 2 + count], source)
    assert torch.equal(target[2 : 2 + count], source)
    assert target[:2].eq(0).all() and target[2 + count :].eq(0).all()


def test_copy_refuses():
    target = torch.zeros(4, 3)
    others = [torch.zeros(4, 3).double(), torch.zeros(5, 3), torch.ones(3, 4).t(), "text"]
    for other in others:
        assert not native.copy(target, other)
        assert not native.copy(other, target)
    assert target.eq(0).all()


def test_one_gradient_fails():
    """The error names it on every rank; the other gradients are not left running."""
    if SIZE == 1:
        pytest.skip("ranks must differ")
    model = nn.ModuleDict({k: nn.Linear(2, 2, bias=False) for k in "abc"})
    model["b"] = nn.Linear(2, RANK + 1, bias=False)
    optimizer = wrap(model, torch.optim.SGD(model.parameters(), lr=0.1))
    for _ in range(2):
        with pytest.raises(hvd.HorovodInternalError, match="Mismatched ALLREDUCE tensor shapes"):
            sum(layer(torch.ones(1, 2)).sum() for layer in model.values()).backward()
        optimizer.zero_grad()
    model["b"].requires_grad_(False)
    good = nn.ModuleDict({"a": model["a"], "c": model["c"]})
    optimizer = wrap(good, torch.optim.SGD(good.parameters(), lr=0.1))
    hvd.broadcast_parameters(good.state_dict(), root_rank=0)
    sum(layer(torch.ones(1, 2)).sum() for layer in good.values()).backward()
    optimizer.step()
    same_everywhere(good)


def test_data_loader_workers():
    """Workers are forked after init; they know nothing of Horovod and leave it alone."""
    model = make_model()
    optimizer = wrap(model)
    dataset = torch.utils.data.TensorDataset(torch.randn(8, 1, 4, 4), torch.zeros(8).long())
    loader = torch.utils.data.DataLoader(dataset, batch_size=4, num_workers=2)
    for _epoch in range(2):
        for batch in loader:
            optimizer.zero_grad()
            loss_of(model, batch).backward()
            optimizer.step()
    same_everywhere(model)


def test_uneven_data_with_join():
    model = make_model()
    optimizer = wrap(model)
    for step in range(2 + RANK):
        optimizer.zero_grad()
        loss_of(model, make_batch(step)[0]).backward()
        optimizer.step()
    hvd.join()
    hvd.broadcast_parameters(model.state_dict(), root_rank=SIZE - 1)
    same_everywhere(model)


def test_set_of_some_ranks():
    if SIZE < 2:
        pytest.skip("needs two ranks")
    hvd.shutdown()
    half = hvd.ProcessSet(range(SIZE // 2))
    hvd.init(process_sets=[half])
    model = make_model()
    optimizer = wrap(model, process_set=half)
    loss_of(model, make_batch(0)[0]).backward()
    mine = gradients(model)[0].clone()
    optimizer.step()
    if half.included():
        average = hvd.allreduce(mine, process_set=half)
        torch.testing.assert_close(average, gradients(model)[0])
    else:
        assert torch.equal(mine, gradients(model)[0])
    with pytest.raises(NotImplementedError):
        wrap(model, op=hvd.Adasum, process_set=half)


def test_gradients_survive_shutdown():
    model = make_model()
    optimizer = wrap(model)
    loss_of(model, make_batch(0)[0]).backward()
    kept = gradients(model)  # in the arena, and nobody tells the library that they are still used
    expected = [g.clone() for g in kept]
    hvd.shutdown()
    close(gradients(model), expected)
    close(kept, expected)
    hvd.init()
    for g in kept:
        g.add_(1.0)
    hvd.allreduce(torch.ones(1 << 20))
    close(kept, [e + 1.0 for e in expected])
    optimizer.step()
    optimizer.zero_grad()
    loss_of(model, make_batch(0)[0]).backward()
    optimizer.step()
    same_everywhere(model)
