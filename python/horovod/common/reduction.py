# SPDX-License-Identifier: Apache-2.0
"""How the gradients of one optimizer or tape are reduced, for every framework but PyTorch.

The argument lists of DistributedOptimizer and its sisters differ in order, as scripts know them.
Below them the choices travel as one Reduction.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from horovod.common.library import native
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.common.util import split_list


class Reduction(NamedTuple):
    """What a user chose."""

    name: str | None
    device_dense: str
    device_sparse: str
    compression: Any
    sparse_as_dense: bool
    op: int
    gradient_predivide_factor: float
    groups: Any = None
    process_set: ProcessSet = global_process_set

    def scale_factors(self) -> tuple[float, float]:
        """(factor before, factor after) the sum over the ranks."""
        if self.op != native.AVERAGE:
            return 1.0, 1.0
        return 1.0 / self.gradient_predivide_factor, self.gradient_predivide_factor


def chunks_of(
    grads: Sequence, variables: Sequence | None, groups: Any, key: Callable[[Any], Any]
) -> list[list[int]]:
    """Lists of indices of gradients that travel together; None has none.

    groups: None, a number of chunks, or lists of variables. key(variable) tells variables apart.
    """
    present = [index for index, grad in enumerate(grads) if grad is not None]
    if groups is None:
        return [[index] for index in present]
    if isinstance(groups, int):
        return [chunk for chunk in split_list(present, groups) if chunk]
    assert variables is not None, "groups of variables need variables"
    index_of = {key(variables[index]): index for index in present}
    chunks = [[index_of.pop(key(v)) for v in group if key(v) in index_of] for group in groups]
    return [chunk for chunk in chunks if chunk] + [[index] for index in index_of.values()]
