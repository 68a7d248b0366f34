# SPDX-License-Identifier: Apache-2.0
"""Start all ranks from the same point: broadcast parameters and Python objects."""

import types
from typing import Any

from horovod.common import objects
from horovod.common.arrays import Arrays
from horovod.common.names import size
from horovod.mxnet.library import mx
from horovod.mxnet.mpi_ops import MXNetError, broadcast_

_arrays = Arrays(lambda error: MXNetError(str(error)))
_DeferredInitializationError = mx.gluon.parameter.DeferredInitializationError


def broadcast_object(obj: Any, root_rank: int = 0, name: str | None = None) -> Any:
    """The root's object on all ranks; anything that cloudpickle can carry."""
    return objects.broadcast_object(_arrays, obj, root_rank, name)


def allgather_object(obj: Any, name: str | None = None) -> list:
    """A list of the objects of all ranks, by rank."""
    return objects.allgather_object(_arrays, obj, name)


def _broadcast_when_initialized(parameter, root_rank, name):
    """Gluon calls `_init_impl` once a deferred parameter knows its shape."""
    initialize = parameter._init_impl

    def initialize_and_broadcast(self, *args, **kwargs):
        self._init_impl = initialize
        initialize(*args, **kwargs)
        with mx.autograd.pause():
            _broadcast_parameter(self, root_rank, name)

    parameter._init_impl = types.MethodType(initialize_and_broadcast, parameter)


def _broadcast_parameter(parameter, root_rank, name):
    first, *others = parameter.list_data()
    broadcast_(first, root_rank, name=name)
    for other in others:
        first.copyto(other)


def broadcast_parameters(params: Any, root_rank: int = 0, prefix: str | None = None) -> None:
    """Copy the root's values into the parameters of all ranks.

    params: `net.collect_params()`, or a dict of arrays as `Module.get_params()` has them. Gluon's
    parameters whose shapes are not known yet are broadcast when they are initialized.
    prefix: goes before the names, to tell several models apart.
    """
    if size() == 1:
        return
    if not isinstance(params, (dict, mx.gluon.parameter.ParameterDict)):
        raise ValueError(f"invalid params of type: {type(params)}")
    prefix = prefix or ""
    for key in sorted(params.keys()):
        value, name = params[key], prefix + str(key)
        if not isinstance(value, mx.gluon.Parameter):
            broadcast_(value, root_rank, name=name)
            continue
        try:
            value.data()
        except _DeferredInitializationError:
            _broadcast_when_initialized(value, root_rank, name)
            continue
        _broadcast_parameter(value, root_rank, name)
