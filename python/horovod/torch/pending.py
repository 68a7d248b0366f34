# SPDX-License-Identifier: Apache-2.0
"""Gradients that are not reduced yet, in the hands of a script that may look at them.

`backward()` usually returns when all gradients are reduced. It can't always: with
`backward_passes_per_step` the pass may be the last one before `step()` or not, and another rank may
wait for something that this one does after backward. Then `p.grad` is a PendingGradient: a tensor
like any other, except that whatever reads it first waits for the reduction. A script that does not
look before `step()` never notices.

Questions about shape and type do not wait. Autograd adds further gradients to it without asking.
"""

import weakref

import torch

_GETTERS = "device dtype is_leaf is_sparse itemsize layout ndim requires_grad shape"
_METHODS = "dim element_size is_complex is_contiguous is_floating_point ndimension nelement numel"
_METADATA = {getattr(torch.Tensor, name).__get__ for name in _GETTERS.split(" ")}
_METADATA |= {getattr(torch.Tensor, name) for name in _METHODS.split(" ")}
_METADATA |= {torch.Tensor.size, torch.Tensor.stride, torch.Tensor.__len__}
# What zero_grad(set_to_none=False) does: it reads nothing, so it waits for running reductions only.
_RESETS = {torch.Tensor.zero_, torch.Tensor.detach_, torch.Tensor.requires_grad_}


class PendingGradient(torch.Tensor):
    """Shows `plain`; whatever reads it calls `_settle()` of its owner first.

    The owner makes `plain` the tensor that holds the result, once there is one.
    """

    @staticmethod
    def of(plain, owner):
        pending = plain.as_subclass(PendingGradient)
        pending.plain = plain
        pending.owner = weakref.ref(owner)
        return pending

    def settle(self, func):
        owner = self.owner()
        if owner is not None and func not in _METADATA:
            owner._settle(is_reset=func in _RESETS)
        return self.plain

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        args = [_settled(value, func) for value in args]
        kwargs = {name: _settled(value, func) for name, value in (kwargs or {}).items()}
        return func(*args, **kwargs)


def _settled(value, func):
    """The argument of a function, with ordinary tensors in place of pending ones."""
    if isinstance(value, PendingGradient):
        return value.settle(func)
    if isinstance(value, (list, tuple)) and any(isinstance(v, PendingGradient) for v in value):
        return type(value)(_settled(item, func) for item in value)
    return value


def defer(p, owner):
    """Make p.grad pending and return it; None if there is none, or it is pending already."""
    grad = p.grad
    if grad is None or type(grad) is PendingGradient or grad.layout is not torch.strided:
        return None
    p.grad = pending = PendingGradient.of(grad.detach() if grad.requires_grad else grad, owner)
    return pending


def plain_grad(p):
    """p.grad as an ordinary tensor, which it is afterwards."""
    grad = p.grad
    if type(grad) is PendingGradient:
        p.grad = grad = grad.plain
    return grad
