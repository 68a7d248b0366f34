# SPDX-License-Identifier: Apache-2.0
"""What the collectives of every framework must do; `hvd` is the framework's package."""

import numpy as np
import pytest

SHAPES = [(), (0,), (3, 0, 2), (1, 1, 1, 1, 1), (100003,)]
OTHER_OPERATIONS = {"Min": np.min, "Max": np.max, "Product": np.prod}


def check_average_argument(hvd, tensor, mean):
    """The old argument `average` still decides, and excludes `op`."""
    with pytest.warns(DeprecationWarning):
        total = hvd.allreduce(tensor, average=False)
    assert np.allclose(total, mean * hvd.size())
    with pytest.raises(ValueError, match="supersedes average"):
        hvd.allreduce(tensor, average=True, op=hvd.Sum)


def check_sum_of_ones(hvd, in_both_modes, ones):
    """The sum has the shape of what was summed."""
    for result in in_both_modes(lambda t: hvd.allreduce(t, op=hvd.Sum), ones):
        assert result.shape == ones.shape
        assert np.all(np.asarray(result) == hvd.size())
