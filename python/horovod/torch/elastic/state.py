# SPDX-License-Identifier: Apache-2.0
"""Model, optimizer and counters of a training run, to save, restore and share.

Saving copies every tensor into memory that the first save has allocated, so a commit costs what
reading and writing the model and the optimizer's state once costs.
"""

import collections
import copy
import itertools

import torch

from horovod.common.elastic import ObjectState, QuickCheck, sync_root
from horovod.torch.elastic.sampler import ElasticSampler
from horovod.torch.functions import (
    broadcast_object,
    broadcast_optimizer_state,
    broadcast_parameters,
)
from horovod.torch.mpi_ops import rank


class TorchState(QuickCheck, ObjectState):
    """State of a PyTorch training run: `TorchState(model, optimizer, batch=0, epoch=0)`.

    Models, optimizers and ElasticSamplers are handled under whatever name they are given; the rest
    are plain values.
    """

    def __init__(self, model=None, optimizer=None, **kwargs):
        kwargs.update({"model": model, "optimizer": optimizer})
        self._handlers, kwargs = _get_handlers(kwargs)
        for name, handler in self._handlers.items():
            object.__setattr__(self, name, handler.value)
        super().__init__(bcast_object=broadcast_object, get_rank=rank, **kwargs)

    def save(self):
        for handler in self._handlers.values():
            handler.save()
        super().save()

    def restore(self):
        for handler in self._handlers.values():
            handler.restore()
        super().restore()

    def sync(self):
        """Take over the state of the oldest rank, and keep it as the one to come back to."""
        for handler in self._handlers.values():
            handler.sync()
        super().sync()
        for handler in self._handlers.values():
            handler.save()

    def discard(self):
        """Forget the gradients of a step that failed: they may be reduced in part."""
        for handler in self._handlers.values():
            if isinstance(handler, OptimizerStateHandler):
                handler.discard()

    def __setattr__(self, name, value):
        if name in self.__dict__.get("_handlers", ()):
            self._handlers[name].set_value(value)
        object.__setattr__(self, name, value)

    def reset(self):
        for handler in self._handlers.values():
            if isinstance(handler.value, ElasticSampler):
                handler.value.reset()


class StateHandler:
    """How one kind of value is saved, restored and shared."""

    def __init__(self, value):
        self.value = value

    def save(self):
        raise NotImplementedError

    def restore(self):
        raise NotImplementedError

    def sync(self):
        raise NotImplementedError

    def set_value(self, value):
        self.value = value
        self.save()


def _save_into(saved, value):
    """A copy of nested dicts, lists and tensors, in the tensors of an earlier copy that fit."""
    if isinstance(value, torch.Tensor):
        is_fit = (
            isinstance(saved, torch.Tensor)
            and saved.shape == value.shape
            and saved.dtype == value.dtype
            and saved.device == value.device
            and saved.layout == value.layout == torch.strided
        )
        return saved.copy_(value) if is_fit else value.detach().clone()
    if type(value) in (dict, collections.OrderedDict):
        earlier = saved if isinstance(saved, dict) else {}
        copied = type(value)((k, _save_into(earlier.get(k), v)) for k, v in value.items())
        if hasattr(value, "_metadata"):  # versions of a model's layers
            copied._metadata = value._metadata
        return copied
    if type(value) in (list, tuple):
        earlier = saved if isinstance(saved, (list, tuple)) and len(saved) == len(value) else ()
        pairs = itertools.zip_longest(earlier, value)
        return type(value)(_save_into(e, v) for e, v in pairs)
    return copy.deepcopy(value)


def _save(saved, value):
    with torch.no_grad():
        return _save_into(saved, value)


class ModelStateHandler(StateHandler):
    """A model: parameters and buffers."""

    def __init__(self, model):
        super().__init__(model)
        self._saved_model_state = _save(None, self.value.state_dict())

    def save(self):
        self._saved_model_state = _save(self._saved_model_state, self.value.state_dict())

    def restore(self):
        self.value.load_state_dict(self._saved_model_state)

    def sync(self):
        broadcast_parameters(self.value.state_dict(), root_rank=sync_root())


class OptimizerStateHandler(StateHandler):
    """An optimizer: options and what it remembers of each parameter."""

    def __init__(self, optimizer):
        super().__init__(optimizer)
        self._saved_optimizer_state = _save(None, self.value.state_dict())

    def save(self):
        self._saved_optimizer_state = _save(self._saved_optimizer_state, self.value.state_dict())

    def restore(self):
        # The optimizer may go on with the very tensors that it is given.
        self.value.load_state_dict(_save(None, self._saved_optimizer_state))
        self.discard()

    def sync(self):
        broadcast_optimizer_state(self.value, root_rank=sync_root())

    def discard(self):
        for group in self.value.param_groups:
            for p in group["params"]:
                p.grad = None


class SamplerStateHandler(StateHandler):
    """An ElasticSampler: where in the epoch it is."""

    def __init__(self, sampler):
        super().__init__(sampler)
        self._saved_sampler_state = copy.deepcopy(self.value.state_dict())

    def save(self):
        self._saved_sampler_state = copy.deepcopy(self.value.state_dict())

    def restore(self):
        self.value.load_state_dict(self._saved_sampler_state)

    def sync(self):
        self.value.load_state_dict(broadcast_object(self.value.state_dict(), sync_root()))


_handler_registry = [
    (torch.nn.Module, ModelStateHandler),
    (torch.optim.Optimizer, OptimizerStateHandler),
    (ElasticSampler, SamplerStateHandler),
]


def get_handler_registry():
    return _handler_registry


def set_handler_registry(registry):
    global _handler_registry
    _handler_registry = registry


def _get_handlers(kwargs):
    """Split into ({name: handler}, values without a handler)."""
    handlers, remaining = {}, {}
    for name, value in kwargs.items():
        handler = _get_handler(value)
        if handler is not None:
            handlers[name] = handler
        else:
            remaining[name] = value
    return handlers, remaining


def _get_handler(value):
    for kind, handler in _handler_registry:
        if isinstance(value, kind):
            return handler(value)
    return None


def _union(dicts):
    return {name: value for d in dicts for name, value in d.items()}
