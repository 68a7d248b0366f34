# SPDX-License-Identifier: Apache-2.0
"""hvd.elastic.run: after a lost peer the last committed state comes back."""

import horovod.tensorflow as hvd
import numpy as np
import pytest
import tensorflow as tf
from horovod.common.exceptions import HostsUpdatedInterrupt

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()


def test_state_comes_back():
    variable = tf.Variable([float(RANK)])
    state = hvd.elastic.TensorFlowState([variable], batch=RANK)
    resets = []
    state.register_reset_callbacks([lambda: resets.append(1)])
    runs = []

    @hvd.elastic.run
    def train(state):
        runs.append(state.batch)
        if len(runs) == 1:
            assert state.batch == 0 and np.allclose(variable, 0)
            variable.assign([5.0])
            state.batch = 5
            state.commit()
            variable.assign([9.0])
            state.batch = 9
            raise tf.errors.UnknownError(None, None, "Horovod: rank 1 is gone")
        assert np.allclose(variable, 5)
        if len(runs) == 2:
            raise HostsUpdatedInterrupt(skip_sync=False)
        assert np.allclose(hvd.allreduce(tf.ones(2), op=hvd.Sum), SIZE)
        return state.batch

    assert train(state) == 5
    assert runs == [0, 5, 5] and len(resets) == 2


def test_other_errors_pass():
    @hvd.elastic.run
    def train(state):
        raise tf.errors.UnknownError(None, None, "the disk is full")

    with pytest.raises(tf.errors.UnknownError, match="disk"):
        train(hvd.elastic.TensorFlowState([], batch=0))
