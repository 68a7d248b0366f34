# SPDX-License-Identifier: Apache-2.0
"""Training that survives lost and added workers; usable without an elastic launcher too."""

from horovod.common.elastic import run_fn
from horovod.torch.elastic.sampler import ElasticSampler
from horovod.torch.elastic.state import TorchState
from horovod.torch.mpi_ops import init, shutdown

__all__ = ["TorchState", "ElasticSampler", "run"]


def run(func):
    """Decorator of a function train(state, ...) that is started anew when workers change."""
    return run_fn(func, _reset)


def _reset():
    shutdown()
    init()
