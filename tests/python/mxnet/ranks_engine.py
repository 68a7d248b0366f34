# SPDX-License-Identifier: Apache-2.0
"""Collectives as operations of MXNet's engine: order, dependencies, layouts, lifetimes."""

import gc
import threading

import horovod.mxnet as hvd
import mxnet as mx
import numpy as np
from plug import occupy

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
TOTAL = SIZE * (SIZE + 1) // 2


def test_call_returns_before_the_input_is_ready():
    gate = threading.Event()
    tensor = mx.nd.ones(4) * (RANK + 1)
    tensor.wait_to_read()
    occupy(tensor, gate)
    tensor *= 2
    copy = hvd.allreduce(tensor, op=hvd.Sum, name="copy")
    hvd.allreduce_(tensor, op=hvd.Sum, name="behind the gate")
    tensor += 1
    assert not gate.is_set()
    gate.set()
    assert tensor.asnumpy().tolist() == [2.0 * TOTAL + 1] * 4
    assert copy.asnumpy().tolist() == [2.0 * TOTAL] * 4


def test_reads_and_writes_without_a_wait():
    """Operations before and after a collective see the right values, however fast Python is."""
    for step in range(30):
        tensor = mx.nd.full((64, 64), RANK + 1.0)
        before = tensor + step
        hvd.allreduce_(tensor, op=hvd.Sum, name="chain")
        after = tensor * 2
        tensor[:] = -1
        reduced = hvd.allreduce(before, op=hvd.Sum, name="of a result")
        assert (after.asnumpy() == 2 * TOTAL).all()
        assert (tensor.asnumpy() == -1).all()
        assert (reduced.asnumpy() == TOTAL + SIZE * step).all()


def test_ranks_differ_in_order():
    count = 200
    tensors = [mx.nd.full((10,), float(k + RANK)) for k in range(count)]
    order = list(range(count))
    np.random.RandomState(RANK).shuffle(order)
    for k in order:
        hvd.allreduce_(tensors[k], op=hvd.Sum, name=f"shuffled.{k}", priority=-k)
    for k in range(count):
        assert (tensors[k].asnumpy() == k * SIZE + TOTAL - SIZE).all()


def test_one_name_step_after_step():
    """Python runs ahead of the engine: one name is pushed many times before the first has run."""
    tensor = mx.nd.ones(3)
    for _ in range(50):
        hvd.allreduce_(tensor, name="again")
        tensor += RANK
    mean = (SIZE - 1) / 2
    np.testing.assert_allclose(tensor.asnumpy(), 1 + 49 * mean + RANK, rtol=1e-5)


def test_arrays_may_be_dropped():
    results = []
    for k in range(50):
        tensor = mx.nd.full((1000,), RANK + 1.0)
        results.append(hvd.allreduce(tensor * 2, op=hvd.Sum, name=f"dropped.{k}"))
        hvd.allreduce_(mx.nd.full((1000,), 1.0), name=f"dropped too.{k}")
        del tensor
    gc.collect()
    for result in results:
        assert (result.asnumpy() == 2 * TOTAL).all()


def test_layouts_of_onednn():
    """The result of a convolution lies in oneDNN's own layout, once it is computed."""
    random = np.random.RandomState(3)
    weight = mx.nd.array(random.rand(32, 16, 3, 3))
    data = mx.nd.array(random.rand(4, 16, 8, 8))

    def convolve():
        return mx.nd.Convolution(
            data * (RANK + 1), weight, no_bias=True, kernel=(3, 3), num_filter=32
        )

    expected = convolve().asnumpy() / (RANK + 1) * TOTAL
    for step in range(10):
        copy = hvd.allreduce(convolve(), op=hvd.Sum, name=f"copy of a layout.{step}")
        own = convolve()
        hvd.allreduce_(own, op=hvd.Sum, name=f"own layout.{step}")
        np.testing.assert_allclose(copy.asnumpy(), expected, rtol=1e-4)
        np.testing.assert_allclose(own.asnumpy(), expected, rtol=1e-4)
        rows = hvd.allgather(convolve(), name=f"rows of a layout.{step}").asnumpy()
        np.testing.assert_allclose(rows[:4], expected / TOTAL, rtol=1e-4)


def test_two_threads():
    def work(number):
        for k in range(20):
            tensor = mx.nd.full((100,), float(number + RANK))
            hvd.allreduce_(tensor, op=hvd.Sum, name=f"thread.{number}.{k}")
            found[number] &= bool((tensor.asnumpy() == number * SIZE + TOTAL - SIZE).all())

    found = {1: True, 2: True}
    threads = [threading.Thread(target=work, args=(n,)) for n in found]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == {1: True, 2: True}


def test_nothing_is_recorded():
    tensor = mx.nd.ones(3)
    tensor.attach_grad()
    with mx.autograd.record():
        result = (tensor * 3).sum()
        hvd.allreduce(tensor, name="while recording")
    result.backward()
    assert tensor.grad.asnumpy().tolist() == [3.0] * 3
