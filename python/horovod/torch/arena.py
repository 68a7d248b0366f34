# SPDX-License-Identifier: Apache-2.0
"""Gradients in memory that peers on this host can reach, so that reducing them copies nothing.

An optimizer's gradients lie one behind the other in reverse order of the parameters, which is about
the order in which backward finishes them. If there are other machines, they lie there without gaps:
neighbours that travel together need not be packed. `views[p]` is to become `p.grad`; `wires[p]` is
the same memory as the core wants it, dense. Parameters for which there is no such memory have
neither.

A script may keep a gradient beyond the step (`kept = p.grad`), or a part of one. Memory that a live
tensor shows is not used again: its parameter gets new memory, and the old is freed with the tensor.
"""

import sys
import weakref

import torch

from horovod.common.library import native
from horovod.common.names import local_size, size
from horovod.torch.pending import plain_grad
from horovod.torch.private import storage_uses

_BUCKET_BYTES = 8 << 20
_ALIGN_BYTES = 64

# Without the C table of PyTorch, asking for addresses takes as long as a copy.
_CAN_COPY = native.register_exchange(torch.Tensor)

_live = weakref.WeakSet()


def _is_dense(tensor):
    """Do the elements fill a block of memory, in whatever order?"""
    expected = 1
    for stride, length in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if length == 1:
            continue
        if stride != expected:
            return False
        expected *= length
    return True


def flat_view(tensor):
    """The memory of a dense tensor as a vector; None if it is not dense."""
    if not _is_dense(tensor):
        return None
    return tensor.as_strided((tensor.numel(),), (1,))


def copy_into(view, tensor):
    """Copy the elements into a tensor of the same shape and dtype."""
    if not (_CAN_COPY and native.copy(view, tensor)):
        view.copy_(tensor)


class _Block:
    """Memory of one or more gradients, and how many tensors show it while no script keeps any."""

    def __init__(self, memory):
        self.storage = memory.untyped_storage()
        self.parameters = {}  # {p: how many tensors of ours show its part}
        self.uses = 0

    def count(self):
        return storage_uses(self.storage)

    def is_kept(self):
        return self.count() > self.uses

    def leave(self, p):
        self.uses -= self.parameters.pop(p)


class GradientArena:
    """Shared memory for the gradients of some parameters.

    dtype: the type of the memory, except for parameters of type `kept`; None: the parameters' own.
    """

    def __init__(self, parameters, dtypes, dtype=None, kept=None):
        self.views = {}
        self.wires = {}
        self._references = {}  # to each view, while no script keeps it
        self._blocks = {}  # {p: block}
        self._dtypes = dtypes
        buckets = {}
        for p in reversed(list(parameters)):
            is_cast = dtype is not None and p.dtype.is_floating_point and p.dtype != kept
            kind = dtype if is_cast else p.dtype
            if p.device.type != "cpu" or p.numel() == 0 or kind not in dtypes or not _is_dense(p):
                continue
            buckets.setdefault(kind, []).append(p)
        for kind, members in buckets.items():
            self._fill(kind, members)
        if self.views:
            _live.add(self)

    def _fill(self, dtype, parameters):
        item = torch.empty((), dtype=dtype).element_size()
        align = _ALIGN_BYTES // item if size() == local_size() else 1
        run, used = [], 0
        for p in parameters:
            run.append((p, used))
            used += -(-p.numel() // align) * align
            if used * item >= _BUCKET_BYTES:
                self._make_block(dtype, run, used)
                run, used = [], 0
        self._make_block(dtype, run, used)

    def _make_block(self, dtype, run, count):
        """Memory for the parameters of `run`, if there is any."""
        capsule = native.alloc(self._dtypes[dtype], (count,)) if run else None
        if capsule is None:
            return
        memory = torch.utils.dlpack.from_dlpack(capsule)
        block = _Block(memory)
        for p, offset in run:
            # .data: what changes one of them does not count as a change of the others.
            self.views[p] = view = memory.as_strided(p.shape, p.stride(), offset).data
            contiguous = view.is_contiguous()
            self.wires[p] = view if contiguous else memory[offset : offset + p.numel()]
            self._references[p] = sys.getrefcount(view)
            self._blocks[p] = block
            block.parameters[p] = 1 if contiguous else 2
        del memory, view
        block.uses = block.count()

    def reclaim(self):
        """Before new gradients come in: memory of which a script shows a part is left to it."""
        for block in {id(block): block for block in self._blocks.values()}.values():
            if block.is_kept():
                for p in list(block.parameters):
                    self._renew(p)

    def place(self, p):
        """The view for a new gradient of p, which no script keeps; None if there is no memory.

        The caller must not hold the view itself: references to it are counted.
        """
        view = self.views.get(p)
        if view is not None and sys.getrefcount(view) > self._references[p]:
            del view
            self._renew(p)
            view = self.views.get(p)
        return view

    def _renew(self, p):
        dtype = self.views[p].dtype
        for table in (self.views, self.wires, self._references):
            del table[p]
        self._blocks.pop(p).leave(p)
        self._make_block(dtype, [(p, 0)], p.numel())

    def release(self):
        """Give the memory back: gradients that lie in it move out."""
        for p, view in self.views.items():
            if plain_grad(p) is view:
                p.grad = view.clone(memory_format=torch.preserve_format)
        self.views = {}
        self.wires = {}
        self._references = {}
        self._blocks = {}


def release_all():
    """Before the library stops: its memory goes with it."""
    for arena in list(_live):
        arena.release()
    _live.clear()
