# SPDX-License-Identifier: Apache-2.0
"""Gradients in memory that peers on this host can reach, so that reducing them copies nothing.

An optimizer's gradients lie one behind the other in reverse order of the parameters, which is about
the order in which backward finishes them. `views[p]` is to become `p.grad`; `wires[p]` is the same
memory as the core wants it, dense. Parameters for which there is no such memory have neither.
"""

import weakref

import torch

from horovod.common.library import native

_BUCKET_BYTES = 8 << 20
_ALIGN_BYTES = 64
_LESSON_BYTES = 31 << 20  # glibc takes no notice of more than 32 MiB

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


class GradientArena:
    """Shared memory for the gradients of some parameters, in `dtype` or in the parameters' own."""

    def __init__(self, parameters, dtypes, dtype=None):
        self.views = {}
        self.wires = {}
        buckets = {}
        for p in reversed(list(parameters)):
            kind = dtype if dtype is not None and p.dtype.is_floating_point else p.dtype
            if p.device.type != "cpu" or p.numel() == 0 or kind not in dtypes or not _is_dense(p):
                continue
            buckets.setdefault(kind, []).append(p)
        for kind, members in buckets.items():
            self._fill(kind, dtypes[kind], members)
        if self.views:
            _live.add(self)
            # Gradients are freed as soon as they are copied, at the top of the heap, which malloc
            # would give back to the system and fault in again in every step. Freeing one large
            # block teaches glibc to keep as much; other allocators do not mind.
            torch.empty(_LESSON_BYTES, dtype=torch.uint8)

    def _fill(self, dtype, number, parameters):
        item = torch.empty((), dtype=dtype).element_size()
        align = _ALIGN_BYTES // item
        start, run, used = 0, [], 0
        for p in parameters:
            run.append((p, used))
            used += -(-p.numel() // align) * align
            if used * item >= _BUCKET_BYTES:
                self._make_bucket(number, run, used)
                run, used = [], start
        self._make_bucket(number, run, used)

    def _make_bucket(self, number, run, count):
        capsule = native.alloc(number, (count,)) if run else None
        if capsule is None:
            return
        memory = torch.utils.dlpack.from_dlpack(capsule)
        for p, offset in run:
            view = memory.as_strided(p.shape, p.stride(), offset)
            self.views[p] = view
            contiguous = view.is_contiguous()
            self.wires[p] = view if contiguous else memory[offset : offset + p.numel()]

    def release(self):
        """Give the memory back: gradients that lie in it move out."""
        for p, view in self.views.items():
            if p.grad is view:
                p.grad = view.clone(memory_format=torch.preserve_format)
        self.views = {}
        self.wires = {}


def release_all():
    """Before the library stops: its memory goes with it."""
    for arena in list(_live):
        arena.release()
    _live.clear()
