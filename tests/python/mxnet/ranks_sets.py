# SPDX-License-Identifier: Apache-2.0
"""Process sets on three ranks: [0, 2], [1] and all."""

import horovod.mxnet as hvd
import mxnet as mx
import numpy as np
import pytest
from mxnet.base import MXNetError

even = hvd.ProcessSet([0, 2])
hvd.init(process_sets=[even])
RANK, SIZE = hvd.rank(), hvd.size()
IS_EVEN = RANK in (0, 2)


def test_collectives_of_a_set():
    tensor = mx.nd.full((4,), float(RANK))
    if IS_EVEN:
        assert (hvd.allreduce(tensor, process_set=even).asnumpy() == 1.0).all()
        assert hvd.allgather(tensor, process_set=even).asnumpy().tolist() == [0.0] * 4 + [2.0] * 4
        assert (hvd.broadcast(tensor, 2, process_set=even).asnumpy() == 2.0).all()
        output, received = hvd.alltoall(tensor, [1, 3], process_set=even)
        assert received.asnumpy().tolist() == [[1, 1], [3, 3]][even.rank()]
        assert output.shape == ((2,), (6,))[even.rank()]
        share = hvd.reducescatter(tensor, op=hvd.Sum, process_set=even)
        assert share.asnumpy().tolist() == [2.0, 2.0]
    assert (hvd.allreduce(tensor, op=hvd.Sum).asnumpy() == 3.0).all()


def test_others_are_refused():
    if not IS_EVEN:
        with pytest.raises(MXNetError, match="not a member|process set"):
            hvd.allreduce(mx.nd.ones(2), name="foreign", process_set=even).wait_to_read()
        with pytest.raises(MXNetError, match="not a member|process set"):
            hvd.allgather(mx.nd.ones(2), process_set=even)
    with pytest.raises(ValueError, match="has not been registered"):
        hvd.allreduce(mx.nd.ones(2), process_set=hvd.ProcessSet([0, 1]))
    assert (hvd.allreduce(mx.nd.ones(2), op=hvd.Sum).asnumpy() == SIZE).all()


def test_sets_added_later():
    pair = hvd.add_process_set([0, 1])
    if RANK < 2:
        result = hvd.allreduce(mx.nd.full((2,), RANK + 1.0), op=hvd.Sum, process_set=pair)
        assert (result.asnumpy() == 3.0).all()
    assert hvd.remove_process_set(pair)


def test_trainer_of_a_set():
    """Ranks of the set train together, the other one alone."""
    net = mx.gluon.nn.Dense(1, in_units=2, use_bias=False)
    net.initialize(mx.init.One())
    trainer = hvd.DistributedTrainer(
        net.collect_params(), "sgd", {"learning_rate": 1.0}, process_set=even
    )
    with mx.autograd.record():
        loss = net(mx.nd.full((1, 2), RANK + 1.0)).sum()
    loss.backward()
    trainer.step(1)
    expected = 1 - (2.0 if IS_EVEN else 2.0)  # the mean of 1 and 3, and rank 1's own 2
    np.testing.assert_allclose(net.weight.data().asnumpy(), expected)
