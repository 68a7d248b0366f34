# SPDX-License-Identifier: Apache-2.0
"""Training: equal to one process with the whole batch, and the same bits on all ranks."""

import warnings

import horovod.mxnet as hvd
import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
PER_RANK, STEPS = 8, 4


def make_net(kind, seed=5):
    """A network with the same weights wherever the seed is the same."""
    mx.random.seed(seed)
    net = gluon.nn.HybridSequential()
    if kind == "conv":
        net.add(gluon.nn.Conv2D(8, 3, in_channels=1, activation="relu"))
        net.add(gluon.nn.Flatten())
        net.add(gluon.nn.Dense(3, in_units=8 * 6 * 6))
    else:
        net.add(gluon.nn.Dense(16, in_units=64, activation="tanh"))
        net.add(gluon.nn.Dense(3, in_units=16))
    net.initialize(mx.init.Xavier())
    net.hybridize()
    return net


def batch(step):
    random = np.random.RandomState(step)
    data = random.rand(PER_RANK * SIZE, 1, 8, 8).astype("f")
    return data, random.randint(0, 3, PER_RANK * SIZE)


def train(net, trainer, rows, size, steps=STEPS):
    """The mean loss of each step."""
    losses = []
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    for step in range(steps):
        data, labels = batch(step % 10)
        with autograd.record():
            loss = loss_of(net(mx.nd.array(data[rows])), mx.nd.array(labels[rows]))
        loss.backward()
        trainer.step(size)
        losses.append(float(loss.mean().asscalar()))
    return losses


def weights(net):
    return [p.data().asnumpy() for _, p in sorted(net.collect_params().items())]


def check_same_bits(net):
    mine = [w.tobytes() for w in weights(net)]
    assert all(theirs == mine for theirs in hvd.allgather_object(mine))


OPTIONS = {
    "plain": {},
    "groups": {"num_groups": 2},
    "predivide": {"gradient_predivide_factor": 2.0},
    "prefix": {"prefix": "first model."},
    "fp16": {"compression": hvd.Compression.fp16},
    "fp16 in groups": {"compression": hvd.Compression.fp16, "num_groups": 1},
}


@pytest.mark.parametrize("kind", ["dense", "conv"])
@pytest.mark.parametrize("options", OPTIONS)
def test_trainer_equals_one_process(kind, options):
    mine = slice(RANK * PER_RANK, (RANK + 1) * PER_RANK)
    net = make_net(kind, seed=5 + RANK)
    hvd.broadcast_parameters(net.collect_params(), prefix=f"{kind}.{options}.")
    optimizer = ("sgd", {"learning_rate": 0.1, "momentum": 0.9})
    trainer = hvd.DistributedTrainer(net.collect_params(), *optimizer, **OPTIONS[options])
    train(net, trainer, mine, PER_RANK)
    alone = make_net(kind)
    whole = gluon.Trainer(alone.collect_params(), *optimizer, kvstore=None)
    train(alone, whole, slice(None), PER_RANK * SIZE)
    tolerance = 2e-2 if "fp16" in options else 1e-5
    for one, all_of_it in zip(weights(net), weights(alone), strict=True):
        np.testing.assert_allclose(one, all_of_it, rtol=tolerance, atol=tolerance / 10)
    check_same_bits(net)


def test_a_hundred_steps():
    """The same bits on all ranks, and the loss curve of one process with the whole batch."""
    mine = slice(RANK * PER_RANK, (RANK + 1) * PER_RANK)
    net, alone = make_net("dense", seed=5 + RANK), make_net("dense")
    hvd.broadcast_parameters(net.collect_params(), prefix="hundred.")
    optimizer = ("sgd", {"learning_rate": 0.05, "momentum": 0.9})
    trainer = hvd.DistributedTrainer(net.collect_params(), *optimizer)
    losses = train(net, trainer, mine, PER_RANK, 100)
    whole = gluon.Trainer(alone.collect_params(), *optimizer, kvstore=None)
    expected = train(alone, whole, slice(None), PER_RANK * SIZE, 100)
    check_same_bits(net)
    mean = np.mean(hvd.allgather_object(losses), axis=0)
    np.testing.assert_allclose(mean, expected, atol=1e-3)
    assert mean[-10:].mean() < mean[:10].mean()


def test_two_trainers_at_once():
    """Gradients of two models have the same numbers; prefixes tell them apart."""
    nets = [make_net("dense"), make_net("dense", seed=9)]
    trainers = [
        hvd.DistributedTrainer(n.collect_params(), "sgd", {"learning_rate": 0.1}, prefix=f"m{i}.")
        for i, n in enumerate(nets)
    ]
    mine = slice(RANK * PER_RANK, (RANK + 1) * PER_RANK)
    data, labels = batch(0)
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    with autograd.record():
        losses = [loss_of(n(mx.nd.array(data[mine])), mx.nd.array(labels[mine])) for n in nets]
    autograd.backward(losses)
    for trainer in trainers if RANK == 0 else reversed(trainers):
        trainer.step(PER_RANK)
    for net in nets:
        check_same_bits(net)


def test_deferred_initialization():
    """Shapes are known at the first forward; that is when values are broadcast."""
    mx.random.seed(RANK)
    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Conv2D(4, 3), gluon.nn.BatchNorm(), gluon.nn.Flatten(), gluon.nn.Dense(3))
    net.initialize(mx.init.Xavier())
    hvd.broadcast_parameters(net.collect_params(), root_rank=SIZE - 1, prefix="deferred.")
    data = mx.nd.ones((2, 1, 8, 8))
    net(data)
    check_same_bits(net)
    # The second time they are there, with other values: the patch is not left behind.
    for parameter in net.collect_params().values():
        parameter.set_data(parameter.data() + RANK)
    hvd.broadcast_parameters(net.collect_params(), prefix="there.")
    check_same_bits(net)
    net.collect_params().initialize(mx.init.Constant(RANK), force_reinit=True)
    assert any((w == RANK).all() for w in weights(net))


def test_broadcast_parameters_of_a_dict():
    arrays = {"b": mx.nd.full((3,), float(RANK)), "a": mx.nd.full((2, 2), float(RANK))}
    hvd.broadcast_parameters(arrays, root_rank=SIZE - 1)
    assert all((a.asnumpy() == SIZE - 1).all() for a in arrays.values())
    if SIZE > 1:
        with pytest.raises(ValueError, match="invalid params of type"):
            hvd.broadcast_parameters([mx.nd.ones(1)])


@pytest.mark.parametrize("num_groups", [0, 2])
def test_optimizer_with_lists(num_groups):
    """What Module's updater does: one call for several weights."""
    optimizer = hvd.DistributedOptimizer(mx.optimizer.SGD(learning_rate=1.0), num_groups=num_groups)
    assert optimizer.rescale_grad == 1.0 / SIZE
    held = [mx.nd.zeros((3,)), mx.nd.zeros((2, 2)), mx.nd.zeros((1,))]
    grads = [mx.nd.full(w.shape, RANK + k + 1.0) for k, w in enumerate(held)]
    states = [optimizer.create_state_multi_precision(k, w) for k, w in enumerate(held)]
    if num_groups == 0:
        for k, (w, g, s) in enumerate(zip(held, grads, states, strict=True)):
            optimizer.update(k, w, g, s)
    else:
        optimizer.aggregate_num = 4
        optimizer.update([0, 1, 2], held, grads, states)
    for k, w in enumerate(held):
        np.testing.assert_allclose(w.asnumpy(), -(k + 1 + (SIZE - 1) / 2), rtol=1e-6)


def test_optimizer_is_the_one_it_wraps():
    inner = mx.optimizer.SGD(learning_rate=0.5)
    optimizer = hvd.DistributedOptimizer(inner, gradient_predivide_factor=2.0)
    assert isinstance(optimizer, mx.optimizer.Optimizer)
    factor = 2.0 / SIZE if SIZE > 1 else 1.0
    assert inner.rescale_grad == factor
    optimizer.set_learning_rate(0.25)
    optimizer.rescale_grad = 0.125
    assert inner.lr == 0.25 and inner.rescale_grad == 0.125
    assert optimizer.learning_rate == 0.25
    net = make_net("dense")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        inner.rescale_grad = factor
        trainer = hvd.DistributedTrainer(net.collect_params(), optimizer)
    assert any("unwrapped" in str(w.message) for w in caught)
    assert trainer._optimizer is inner
    np.testing.assert_allclose(trainer._scale, 1.0 / SIZE)


def test_plain_trainer_with_the_optimizer():
    """gluon.Trainer sets rescale_grad in every step; the average stays one."""
    net = gluon.nn.Dense(1, in_units=1, use_bias=False)
    net.initialize(mx.init.One())
    optimizer = hvd.DistributedOptimizer(mx.optimizer.SGD(learning_rate=1.0))
    trainer = gluon.Trainer(net.collect_params(), optimizer, kvstore=None)
    with autograd.record():
        loss = net(mx.nd.full((4, 1), RANK + 1.0)).sum()
    loss.backward()
    trainer.step(4)
    np.testing.assert_allclose(net.weight.data().asnumpy(), 1 - (SIZE + 1) / 2)


def test_module_fit():
    """The symbolic interface, with DistributedOptimizer."""
    mx.random.seed(RANK)
    data, labels = batch(0)
    mine = slice(RANK * PER_RANK, (RANK + 1) * PER_RANK)
    symbol = mx.sym.FullyConnected(mx.sym.Flatten(mx.sym.var("data")), num_hidden=3, name="fc")
    module = mx.mod.Module(mx.sym.SoftmaxOutput(symbol, name="softmax"))
    source = mx.io.NDArrayIter(data[mine], labels[mine], batch_size=PER_RANK)
    module.bind(source.provide_data, source.provide_label)
    module.init_params(mx.init.Xavier())
    held, auxiliary = module.get_params()
    hvd.broadcast_parameters(held, prefix="module.")
    module.set_params(held, auxiliary)
    before = held["fc_weight"].asnumpy()
    optimizer = hvd.DistributedOptimizer(
        mx.optimizer.SGD(learning_rate=0.1, rescale_grad=1.0 / PER_RANK)
    )
    module.fit(source, num_epoch=2, optimizer=optimizer, kvstore=None)
    after = module.get_params()[0]["fc_weight"].asnumpy()
    assert not np.array_equal(before, after)
    assert all(np.array_equal(after, theirs) for theirs in hvd.allgather_object(after))
