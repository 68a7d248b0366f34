# SPDX-License-Identifier: Apache-2.0
"""Training that survives lost and added workers; usable without an elastic launcher too."""

from horovod.common.elastic import given_process_sets, leave, make_run, run_fn  # noqa: F401
from horovod.torch.elastic.sampler import ElasticSampler
from horovod.torch.elastic.state import TorchState
from horovod.torch.mpi_ops import init, shutdown

__all__ = ["TorchState", "ElasticSampler", "run", "leave"]


def _reset():
    shutdown()
    init(process_sets=given_process_sets())


run = make_run(_reset, module=__name__)
