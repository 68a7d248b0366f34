# SPDX-License-Identifier: Apache-2.0
"""hvd.DistributedOptimizer: an optimizer whose gradients are reduced over all ranks.

A gradient's way: backward finishes it, a hook copies it once into memory that the peers reach, and
its allreduce starts: at once where a core is free for it or the network does the waiting, so that
it runs while backward goes on; otherwise when backward ends, in the thread that then waits for it
anyway. Either way the end of backward waits for all of them. So `p.grad` holds the reduced gradient
as soon as `backward()` returns: clipping, GradScaler and whatever else looks at gradients work
without further calls, and `synchronize()` in `step()` usually finds nothing left to do.

A turn is what lies between two steps. In a turn each parameter is reduced in one or more rounds:
the last of `backward_passes_per_step` backward passes runs the first, each further pass another,
which reduces only what that pass has added. Ranks may differ in what they do between two steps.
The k-th reduction of a parameter has a name of its own, so it is only ever combined with the k-th
of the same turn; `step()` runs the rounds that other ranks have run and this one has not, with
zeros, and none returns from it before all are inside (turns.py). Hence a gradient never meets one
of another step.

The end of backward does not wait for ever: another rank may need something that this one does
between backward and `step()`. After a while it returns with gradients that wait when they are read
(pending.py).

Start reading at `_DistributedOptimizer._on_gradient`, then `_on_end_of_backward` and `_end_turn`.
"""

import os
import warnings
import weakref
from collections.abc import Iterable
from contextlib import contextmanager, suppress

import torch

from horovod.common.compression import Compressor, wire_flag
from horovod.common.exceptions import HorovodInternalError
from horovod.common.handles import set_id
from horovod.common.library import native
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.common.stacks import LongWait
from horovod.common.util import split_list
from horovod.torch.arena import GradientArena, copy_into, flat_view
from horovod.torch.compression import BF16Compressor, Compression, FP16Compressor
from horovod.torch.functions import broadcast_object
from horovod.torch.mpi_ops import (
    _DTYPES,
    _HOLD,
    _WAITED,
    Adasum,
    Average,
    Max,
    Sum,
    _allreduce_async,
    _grouped_allreduce_async,
    _handles,
    is_initialized,
    local_size,
    rocm_built,
    size,
    sparse_allreduce_async,
    synchronize,
)
from horovod.torch.pending import defer, plain_grad
from horovod.torch.private import at_end_of_backward, current_backward, is_nested_backward
from horovod.torch.turns import Word, discard_bit, era, find_conflict

_TOO_MANY_PASSES = (
    "Gradients were computed more than backward_passes_per_step times before call to step(). "
    "Increase backward_passes_per_step to accumulate gradients locally."
)
_ZERO_GRAD_TEXT = (
    "optimizer.zero_grad() was called after loss.backward() but before optimizer.step() or "
    "optimizer.synchronize(). This is prohibited as it can cause a race condition."
)
_STEP_TEXT = (
    "optimizer.step() called without optimizer.skip_synchronize() context after "
    "optimizer.synchronize(). This can cause training slowdown. You may want to consider using "
    "optimizer.skip_synchronize() context if you use optimizer.synchronize() in your code."
)
_CAST_DTYPES = {FP16Compressor: torch.float16, BF16Compressor: torch.bfloat16}
_SUBMITTED = object()  # stands for a handle in _submitted
_DENSE, _SPARSE = "dense", "sparse"
_GLANCE_MS, _LOOK_MS = 1, 100
_PATIENCE_MS = 200  # how long the end of backward waits for other ranks, at first


def _is_elastic():
    return os.environ.get("HOROVOD_ELASTIC") == "1"


# ---- arguments ----


def _read_names(param_groups, named_parameters, default_name):
    """{parameter: name}; ValueError if a name is missing or comes twice."""
    if named_parameters is not None:
        named_parameters = list(named_parameters)
    else:
        named_parameters = [
            (default_name(i, j), p)
            for i, group in enumerate(param_groups)
            for j, p in enumerate(group["params"])
        ]
    if any(not isinstance(entry, tuple) for entry in named_parameters):
        raise ValueError(
            "named_parameters should be a sequence of tuples (name, parameter), usually produced "
            "by model.named_parameters()."
        )
    duplicates = _DistributedOptimizer.find_duplicates([name for name, _ in named_parameters])
    if duplicates:
        raise ValueError(
            "Parameter names in named_parameters must be unique. Found duplicates: "
            + ", ".join(sorted(duplicates))
        )
    named_ids = {id(p) for _, p in named_parameters}
    all_ids = {id(p) for group in param_groups for p in group["params"]}
    unnamed = all_ids - named_ids
    if unnamed:
        raise ValueError(
            "named_parameters was specified, but one or more model parameters were not named. "
            f"Python object ids: {', '.join(str(i) for i in sorted(unnamed))}"
        )
    return {p: name for name, p in sorted(named_parameters, key=lambda pair: pair[0])}


def _check_groups(groups):
    if groups is None:
        return
    if not (isinstance(groups, list) or groups > 0):
        raise ValueError(
            "groups should be a non-negative integer or a list of list of torch.Tensor."
        )
    if isinstance(groups, list):
        members = [p for group in groups for p in group]
        if any(not isinstance(p, torch.Tensor) for p in members):
            raise ValueError("groups must consist of torch.Tensor.")
        if len({id(p) for p in members}) != len(members):
            raise ValueError("A parameter can only appear once in groups.")


# ---- owners ----

# id of a parameter -> (reference to it, reference to the optimizer that reduces it): the one that
# was made last. Parameters can't be keys, because comparing them makes tensors.
_owners = {}


def _owner_of(p):
    _, owner = _owners.get(id(p), (None, None))
    return owner() if owner is not None else None


def _set_owner(p, optimizer):
    key = id(p)
    _owners[key] = (weakref.ref(p, lambda _: _owners.pop(key, None)), weakref.ref(optimizer))


# ---- backward ----


def _has_spare_core():
    """Is a core left for the engine's thread while every rank of this host computes?"""
    total = os.cpu_count() or 1
    mine = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else total
    if mine * local_size() <= total:  # bound to cores of its own
        return mine > torch.get_num_threads()
    return mine >= local_size() * (torch.get_num_threads() + 1)


def _hook_gradient(p, function):
    """Call function() when backward has finished p.grad; returns something that keeps the hook."""
    if hasattr(p, "register_post_accumulate_grad_hook"):
        return p.register_post_accumulate_grad_hook(lambda _: function())
    accumulator = p.expand_as(p).grad_fn.next_functions[0][0]
    accumulator.register_hook(lambda *_: function())
    return accumulator


class _DistributedOptimizer(torch.optim.Optimizer):
    """Its attributes go into a class made for the wrapped optimizer; see DistributedOptimizer."""

    def __init__(self, params, *args, **kwargs):
        super(self.__class__, self).__init__(params)
        self._set_up(*args, **kwargs)

    def _set_up(
        self,
        named_parameters,
        compression,
        backward_passes_per_step=1,
        op=Average,
        gradient_predivide_factor=1.0,
        groups=None,
        sparse_as_dense=False,
        process_set=global_process_set,
    ):
        if named_parameters is not None:
            named_parameters = list(named_parameters)
        names = _read_names(
            self.param_groups, named_parameters, lambda i, j: f"allreduce.noname.{i}.{j}"
        )
        self._parameter_names = names
        self._first_name = min(names.values(), default="")
        self._compression = compression
        # Flag of the type in which float32 travels: the core converts it. All else is cast.
        self._wire_flag = wire_flag(compression, op)
        self.backward_passes_per_step = backward_passes_per_step
        self._allreduce_delay = dict.fromkeys(names, backward_passes_per_step)
        self.op = op
        self.gradient_predivide_factor = gradient_predivide_factor
        self.sparse_as_dense = sparse_as_dense
        self.process_set = process_set

        self._turn = 0
        self._era = era()
        self._word = None  # _WordHandle of a word that is not answered
        self._words = None  # memory for the words of all ranks
        self._kinds = {}  # {p: _DENSE or _SPARSE}, as agreed by all ranks
        self._begin_turn()

        self._is_overlapping = None  # are allreduces started while backward goes on?
        self._patience_ms = _PATIENCE_MS
        self._tasks = set()  # backward passes under way
        self._is_nested = False  # is the newest of them inside another?
        self._grad_accs = []
        self._requires_update = {}  # in order, which a set would not keep
        self._asleep = []  # parameters that need no gradient so far
        self._hooks = {}
        self._synchronized = False
        self._should_synchronize = True
        self._arena = None
        _check_groups(groups)
        self._groups = groups
        self._p_to_group = {}
        self._group_counts = {}

        self._is_active = self._is_member()
        if self._is_active:
            self._register_hooks()

    def _is_member(self):
        """Are gradients reduced at all? In an elastic job also by one rank: others may come."""
        return self.process_set.included() and (size() > 1 or _is_elastic())

    def _begin_turn(self):
        """Nothing of this turn has happened yet."""
        # {p: (handle, ctx)} of what is in flight. A handle is a number or a function that waits;
        # ctx is what to do with the result, if anything.
        self._handles = {}
        self._submitted = []  # handles of gradients in the arena that were started together
        self._sent = {}  # {p: rounds in which p was started}
        self._round = 0  # the largest of these numbers
        self._reached = 0  # how many parameters have reached it
        self._targets = {}  # {p: gradient that holds, or will hold, the result}, if started
        self._staged = {}  # {p: (gradient, what to reduce, ctx)}: in place, not started
        self._counted = {}  # parameters with fewer backward passes than backward_passes_per_step
        self._extra = {}  # {p: gradient that came after p was started}: for the next round
        self._aside = {}  # {p: p.grad while autograd makes the next extra}
        self._at_risk = {}  # {p: what was started} by a backward that has not ended yet
        self._void = set()  # parameters whose backward failed after they were started
        self._results = {}  # {p: (gradient, its version)} when it was last reduced
        self._deferred = {}  # {p: p.grad as a script may see it} before it is reduced
        self._discards = 0
        self._is_ending = False  # is this rank in step()?
        self._brought = None  # (its rounds, has it changed gradients?) when it came there
        self._blank = set()  # parameters that were started without a gradient, kind not agreed yet
        self._dense_now = set()  # sparse parameters that another rank has started as dense ones
        if self._word is not None:
            self._word = self._words = None  # it may still be running

    @staticmethod
    def find_duplicates(lst):
        seen = set()
        return {item for item in lst if item in seen or seen.add(item)}

    def set_backward_passes_per_step(self, passes):
        self.backward_passes_per_step = passes
        for p in self._allreduce_delay:
            self._allreduce_delay[p] = passes

    def load_state_dict(self, *args, **kwargs):
        self._drain()
        self._start_over()
        super(self.__class__, self).load_state_dict(*args, **kwargs)

    # ---- parameters ----

    def _register_hooks(self):
        self._set_up_groups()
        for group in self.param_groups:
            for p in group["params"]:
                if p.requires_grad:
                    self._adopt(p)
                else:
                    self._asleep.append(p)

    def _adopt(self, p):
        """From now on p is reduced in every turn, by this optimizer and no other."""
        former = _owner_of(p)
        if former is not None and former is not self:
            former._leave(p)
        _set_owner(p, self)
        self._requires_update[p] = True
        self._allreduce_delay.setdefault(p, self.backward_passes_per_step)
        if p.requires_grad:
            this = weakref.ref(self)
            before = p.register_hook(_DistributedOptimizer._hook_before(this, p))
            after = _hook_gradient(p, _DistributedOptimizer._hook(this, p))
            self._hooks[p] = (before, after)
            self._grad_accs.append(after)

    def _leave(self, p):
        """Another optimizer reduces p from now on; step() takes the gradient as it is."""
        if p in self._handles:
            self._drain()
            self._start_over()
        self._requires_update.pop(p, None)
        self._kinds.pop(p, None)
        for hook in self._hooks.pop(p, ()):
            if hasattr(hook, "remove"):
                hook.remove()
        self._grad_accs = [after for _, after in self._hooks.values()]

    def _notice_parameters(self):
        """Parameters that have been frozen, or that were added, are reduced once they can be."""
        if any(p.requires_grad for p in self._asleep):
            awake = [p for p in self._asleep if p.requires_grad]
            self._asleep = [p for p in self._asleep if not p.requires_grad]
            for p in awake:
                self._adopt(p)

    def add_param_group(self, param_group):
        super(self.__class__, self).add_param_group(param_group)
        if "_parameter_names" not in self.__dict__:
            return  # the base class is being set up
        index = len(self.param_groups) - 1
        taken = set(self._parameter_names.values())
        for j, p in enumerate(self.param_groups[index]["params"]):
            if p in self._parameter_names:
                name = self._parameter_names[p]  # named_parameters may name more than there are
            else:
                name = f"allreduce.noname.{index}.{j}"
                if name in taken:
                    raise ValueError(f"The name {name} is taken; give the new parameters names.")
            self._parameter_names[p] = name
            self._allreduce_delay[p] = self.backward_passes_per_step
            if self._is_active:
                self._asleep.append(p)
        self._first_name = min(self._parameter_names.values())
        if self._is_active:
            self._notice_parameters()

    @staticmethod
    def _hook(this, p):
        """A hook that does not keep the optimizer alive."""

        def hook():
            optimizer = this()
            if optimizer is not None:
                optimizer._on_gradient(p)

        return hook

    @staticmethod
    def _hook_before(this, p):
        def hook(_):
            optimizer = this()
            if optimizer is not None and p in optimizer._targets:
                optimizer._set_aside(p)

        return hook

    def _make_hook(self, p):
        return _DistributedOptimizer._hook(weakref.ref(self), p)

    def _set_up_groups(self):
        if self._groups is None:
            return
        parameters = [p for group in self.param_groups for p in group["params"]]
        if isinstance(self._groups, list):
            mine = set(parameters)
            groups = [[p for p in group if p in mine and p.requires_grad] for group in self._groups]
        else:
            by_name = {self._parameter_names[p]: p for p in parameters if p.requires_grad}
            names = sorted(by_name)
            if not _is_elastic():  # else a worker that comes later would be alone here
                names = broadcast_object(
                    list(by_name),
                    root_rank=self.process_set.ranks[0] if self.process_set.ranks else 0,
                    name="DistributedOptimizer.groups",
                    process_set=self.process_set,
                )
            groups = split_list([by_name[name] for name in names], self._groups)
        for group in groups:
            members = tuple(group)
            for p in members:
                self._p_to_group[p] = members
            if members:
                self._group_counts[members] = 0

    # ---- a gradient is ready ----

    def _set_aside(self, p):
        """Before autograd adds to p.grad, which has been reduced in this turn or is being so."""
        self._check_era()
        if p not in self._targets:
            return
        base = plain_grad(p)
        if base is None and p not in self._void:
            self._results.pop(p, None)
            self._discards |= discard_bit(self._sent[p])
            if p not in self._handles:
                del self._targets[p]  # its memory is free: what comes is a gradient like the first
                return
        self._aside[p] = base
        p.grad = self._extra.pop(p, None)

    def _on_gradient(self, p):
        self._check_era()
        if not self._is_active:
            return
        if p in self._aside:
            extra = p.grad
            self._extra[p] = extra.detach() if extra.requires_grad else extra
            p.grad = self._aside.pop(p)
            self._expect_end_of_backward()
            return
        if self._allreduce_delay[p] > 0:
            self._allreduce_delay[p] -= 1
            if self._allreduce_delay[p] > 0:
                self._counted[p] = True
                self._defer(p)
                return
        self._expect_end_of_backward()
        if not self._starts_at_once(p):
            self._stage(p)
        elif p in self._p_to_group and p not in self._sent:
            self._count_group(p, self._p_to_group[p])
        else:
            self._start_early(p)

    def _starts_at_once(self, p):
        if self._is_overlapping is None:
            self._is_overlapping = size() > local_size() or _has_spare_core()
        if not self._is_overlapping or self._is_nested:
            return False
        # A gradient that lies in its place already (zero_grad(set_to_none=False)) could not be
        # taken back, should this backward fail.
        return not self._is_held(p) and p.grad is not self._views()[0].get(p)

    def _stage(self, p):
        """Put the gradient in place while it is in the cache."""
        if self._is_held(p) or self._is_sparse(p):
            self._staged[p] = (None, None, None)
            return
        wire, finish = self._wire(p)
        self._staged[p] = (p.grad, wire, finish)

    def _take_staged(self, p):
        """(what to reduce, ctx) of a gradient; prepared anew if it was not, or was replaced."""
        grad, wire, finish = self._staged.pop(p, (None, None, None))
        if grad is None or p.grad is not grad:
            return self._wire(p)
        return wire, finish

    def _start_early(self, p):
        """Before backward has ended: should it fail, what was started is known."""
        self._keep_contribution(p)
        self._handles[p] = self._allreduce_grad_async(p)

    def _keep_contribution(self, p):
        grad = p.grad.detach()
        in_place = self._views()[0].get(p) is None and not self._is_cast(grad)
        self._at_risk[p] = grad.clone() if in_place and not grad.is_sparse else grad

    def _count_group(self, p, group):
        self._keep_contribution(p)
        self._stage(p)
        self._group_counts[group] += 1
        if self._group_counts[group] == len(group) and not any(map(self._is_held, group)):
            self._start_group(group)

    def _start_group(self, group):
        self._group_counts[group] = 0
        for p, entry in zip(group, self._grouped_allreduce_grad_async(group), strict=True):
            self._handles[p] = entry

    def _scale_factors(self):
        if self.op != Average:
            return 1.0, 1.0
        return 1.0 / self.gradient_predivide_factor, self.gradient_predivide_factor

    def _views(self):
        """(views, wires) of the arena; empty where there is none."""
        if self._arena is None:
            cast = _CAST_DTYPES.get(self._compression)
            kept = torch.float32 if self._wire_flag else None
            parameters = self._requires_update if self._has_arena() else ()
            self._arena = GradientArena(parameters, _DTYPES, cast, kept)
        return self._arena.views, self._arena.wires

    def _has_arena(self):
        return self._compression is Compression.none or self._compression in _CAST_DTYPES

    def _is_cast(self, grad):
        """Does compress() make another tensor of it before it is reduced?"""
        if self._compression is Compression.none:
            return False
        return not (self._wire_flag and grad.dtype is torch.float32)

    def _compress(self, grad):
        """(what to reduce, function that makes a gradient of the result)."""
        if not self._is_cast(grad):
            return grad, lambda result: result
        wire, ctx = self._compression.compress(grad)
        return wire, lambda result: self._compression.decompress(result, ctx)

    def _wire(self, p):
        """(what to reduce in place, function that makes the result p.grad or None if it is)."""
        grad = plain_grad(p)
        if grad is None:
            # Another rank may have a gradient for it.
            if p not in self._kinds:
                self._blank.add(p)
            p.grad = grad = torch.zeros_like(p, requires_grad=False)
        elif grad.requires_grad:
            p.grad = grad = grad.detach()
        if grad.is_sparse:
            return self._dense_wire(p, grad)
        views, wires = self._views()
        view = grad if grad is views.get(p) else self._arena.place(p)
        is_cast = self._is_cast(grad)
        if view is not None and is_cast:
            view.copy_(grad)
            return wires[p], lambda _: grad.copy_(view)
        if view is not None and view.dtype == grad.dtype and grad.device.type == "cpu":
            if grad is not view:
                copy_into(view, grad)
                p.grad = view
            return wires[p], None
        if is_cast:
            wire, restore = self._compress(grad)
            return wire, lambda result: grad.set_(restore(result))
        if not grad.is_contiguous():
            flat = flat_view(grad)
            return (flat if flat is not None else grad), None
        return grad, None

    def _dense_wire(self, p, grad):
        """A sparse gradient, reduced as a dense one."""
        wire, restore = self._compress(grad.to_dense())

        def finish(result):
            p.grad = restore(result)
            if self.sparse_as_dense:
                p.grad = p.grad.to_sparse()

        return wire, finish

    def _extra_wire(self, p):
        """The same for what came after p was started; nothing is zeros."""
        extra = self._extra.pop(p, None)
        if extra is None:
            extra = torch.zeros_like(p, requires_grad=False)
        else:
            self._blank.discard(p)
        if extra.is_sparse:
            extra = extra.to_dense()
        wire, restore = self._compress(extra.contiguous())

        def finish(result):
            self._add(p, restore(result))

        return wire, finish

    @staticmethod
    def _add(p, result):
        grad = plain_grad(p)
        if grad is None:
            p.grad = result.reshape(p.shape)
        elif not grad.is_sparse:
            grad.add_(result)
        else:
            p.grad = grad + (result if result.is_sparse else result.to_sparse(grad.sparse_dim()))

    # ---- starting ----

    def _allreduce_grad_async(self, p, flags=_HOLD):
        """Start the allreduce of p.grad; returns (handle, ctx)."""
        is_extra = p in self._targets
        name = self._name_round(p)
        if self._is_sparse(p):
            return self._sparse_allreduce_grad_async(p, name)
        wire, finish = self._extra_wire(p) if is_extra else self._take_staged(p)
        self._targets.setdefault(p, p.grad)
        prescale, postscale = self._scale_factors()
        flags |= self._wire_flag
        handle = _allreduce_async(
            wire, wire, name, self.op, prescale, postscale, self.process_set, flags
        )
        return handle, finish

    def _name_round(self, p):
        """p is started once more in this turn: under this name."""
        count = self._sent.get(p, 0) + 1
        self._sent[p] = count
        self._counted.pop(p, None)
        if count > self._round:
            self._round, self._reached = count, 0
        self._reached += count == self._round
        name = self._parameter_names[p]
        return name if count == 1 else f"{name}.round{count}"

    def _is_sparse(self, p):
        return self._kinds.get(p) == _SPARSE and p not in self._dense_now

    def _is_held(self, p):
        """Must it wait until the ranks have agreed on its kind?

        At the end of backward a parameter without a gradient does not wait: what a script then
        finds in p.grad must be the same on all ranks.
        """
        if p in self._kinds or self.sparse_as_dense:
            return False
        return self._is_ending if p.grad is None else p.grad.is_sparse

    def _can_start(self, p):
        """Those of a group start together, or none does."""
        group = self._p_to_group.get(p) if p not in self._sent else None
        return p in self._targets or not any(map(self._is_held, group or (p,)))

    def _sparse_allreduce_grad_async(self, p, name):
        self._staged.pop(p, None)
        is_extra = p in self._targets
        grad = self._extra.pop(p, None) if is_extra else plain_grad(p)
        if grad is None:
            grad = torch.zeros_like(p, requires_grad=False)
        if not grad.is_sparse:
            grad = grad.to_sparse(1)
        if not is_extra:
            p.grad = grad
        self._targets.setdefault(p, grad)
        handle = sparse_allreduce_async(grad, name=name, op=self.op, process_set=self.process_set)

        def finish(result):
            if is_extra:
                self._add(p, result)
            else:
                p.grad = result

        return handle, finish

    def _grouped_allreduce_grad_async(self, ps):
        """Start the allreduces of a group; returns (handle, ctx) for each."""
        if any(map(self._is_sparse, ps)):
            return [self._allreduce_grad_async(p) for p in ps]
        name = self._parameter_names[ps[0]]
        wires, finishes = zip(*(self._take_staged(p) for p in ps), strict=True)
        for p in ps:
            self._name_round(p)
            self._targets.setdefault(p, p.grad)
        prescale, postscale = self._scale_factors()
        wires = list(wires)
        flags = _HOLD | self._wire_flag
        handle = _grouped_allreduce_async(
            wires, wires, name, self.op, prescale, postscale, self.process_set, flags
        )
        group = _GroupHandle(handle)
        return [(group.part(i), finish) for i, finish in enumerate(finishes)]

    def _start_missing(self, target):
        """Start every parameter that was started in fewer than `target` rounds.

        Whoever calls this waits at once, so the engine's thread need not hear of it.
        """
        done_groups = set()
        together = []
        _, wires = self._views()
        for p in reversed(self._requires_update):
            if self._sent.get(p, 0) >= target or p in self._handles:
                continue
            self._allreduce_delay[p] = 0
            if not self._can_start(p):
                continue
            group = self._p_to_group.get(p) if p not in self._sent else None
            if group is not None:
                if group not in done_groups:
                    done_groups.add(group)
                    self._start_group(group)
            elif p in wires and p not in self._targets and not self._is_sparse(p):
                together.append(p)
            else:
                self._handles[p] = self._allreduce_grad_async(p, _WAITED)
        if together:
            self._start_together(together)

    def _start_together(self, ps):
        """Start gradients that have their place in the arena, by one call."""
        names, tensors = [], []
        for p in ps:
            wire, finish = self._take_staged(p)
            if wire is not self._arena.wires.get(p):  # it has changed its type or device
                self._staged[p] = (p.grad, wire, finish)
                self._handles[p] = self._allreduce_grad_async(p, _WAITED)
                continue
            self._handles[p] = (_SUBMITTED, finish)
            names.append("allreduce." + self._name_round(p))
            self._targets[p] = p.grad
            tensors.append(wire)
        scales = self._scale_factors()
        where = (set_id(self.process_set), self.op, *scales)
        flags = _WAITED | self._wire_flag
        try:
            native.submit_each(self._submitted, native.ALLREDUCE, names, *where, tensors, flags)
        except native.StatusError as error:
            self._give_up()
            raise HorovodInternalError(error)  # noqa: B904 - scripts look at the context

    # ---- rounds ----

    def _has_news(self):
        return bool(self._staged or self._extra or self._counted)

    def _next_target(self):
        """The round to complete or begin; 0 if there is nothing to do."""
        if self._round > 0 and self._reached < len(self._requires_update):
            missing = (p for p in self._requires_update if self._sent.get(p, 0) < self._round)
            if any(map(self._can_start, missing)):
                return self._round
        if self._round == 0:
            return 1
        news = (*self._staged, *self._extra, *self._counted)
        return self._round + 1 if any(map(self._can_start, news)) else 0

    def _run_rounds(self, limit_ms=None):
        """Reduce what there is. False: the time is over and some of it is in flight."""
        if not self._handles and not self._has_news():
            return True  # step() was called inside of this backward
        with self._errors():
            while (target := self._next_target()) > 0 or self._handles:
                self._start_missing(target)
                if not self._handles:
                    break  # what is left is held until step()
                if limit_ms is not None and not self._have_ended(limit_ms):
                    return False
                self._wait_all()
        return True

    def _in_flight(self):
        handles = list(self._submitted)
        for handle, _ in self._handles.values():
            if handle is not _SUBMITTED:
                handles += getattr(handle, "handles", None) or [handle]
        return handles

    def _have_ended(self, limit_ms):
        return native.have_ended(self._in_flight(), limit_ms)

    def _wait_all(self):
        """Wait for all that is in flight; p.grad is an ordinary tensor again."""
        if self._submitted:
            native.finish_each(self._submitted)
            self._submitted.clear()
        for p, (handle, finish) in self._handles.items():
            result = None
            if handle is not _SUBMITTED:
                result = handle() if callable(handle) else synchronize(handle)
            if p in self._void:
                self._void.discard(p)
                p.grad = self._targets[p]
            plain_grad(p)
            if finish is not None:
                finish(result)
            self._resolve(p)
        for p in self._handles:
            grad = p.grad
            self._results[p] = (grad, None if grad is None else grad._version)
        self._handles.clear()

    def _defer(self, p):
        """Whoever reads p.grad from now on waits for the reduction first."""
        pending = defer(p, self)
        if pending is not None:
            self._deferred[p] = pending

    def _resolve(self, p):
        """What was handed out as p.grad shows the result."""
        pending = self._deferred.pop(p, None)
        if pending is not None and p.grad is not None:
            pending.plain = p.grad

    @contextmanager
    def _errors(self):
        """Whatever goes wrong, nothing of this turn counts."""
        try:
            yield
        except native.StatusError as error:
            self._submitted.clear()  # all have ended
            self._drain()
            self._start_over()
            raise HorovodInternalError(error)  # noqa: B904 - scripts look at the context
        except HorovodInternalError:
            self._drain()
            self._start_over()
            raise
        except BaseException:
            self._give_up()
            raise

    def _give_up(self):
        """Without waiting: nothing of this turn counts, but some of it may still be running."""
        _handles.abandon(self._submitted, self._arena, list(self._targets.values()))
        self._submitted.clear()
        self._start_over()

    def _drain(self):
        """Wait for what is in flight, whatever comes of it: its memory may be used again."""
        for handle, _ in list(self._handles.values()):
            try:
                if handle is _SUBMITTED:
                    continue
                if callable(handle):
                    handle()
                else:
                    synchronize(handle)
            except Exception:  # noqa: BLE001 - the caller starts over
                pass
        if self._submitted:
            with suppress(Exception):
                native.finish_each(self._submitted)
            self._submitted.clear()

    def _start_over(self):
        """The next backward begins a new turn."""
        for p in self._targets:
            plain_grad(p)
        for p in self._counted:
            plain_grad(p)
        self._begin_turn()
        self._tasks.clear()
        for group in self._group_counts:
            self._group_counts[group] = 0
        for p in self._allreduce_delay:
            self._allreduce_delay[p] = self.backward_passes_per_step
        self._check_era()

    def _check_era(self):
        """In another world, or after a join, the ranks count from the beginning."""
        if self._era == era() or not is_initialized():
            return
        self._era = era()
        self._turn = 0
        if self._submitted or self._handles:
            _handles.keep(self._arena, list(self._targets.values()))
        if self._arena is not None and not self._arena.views:  # it may be another world
            self._arena = None
            self._is_overlapping = None
            self._words = None
            self._kinds.clear()
        self._notice_membership()
        self._start_over()

    def _notice_membership(self):
        """In an elastic job this rank, or the ranks of our process set, may be others now."""
        if not _is_elastic():
            return
        self._is_active = self.process_set.process_set_id is not None and self._is_member()
        if self._is_active and not (self._requires_update or self._asleep):
            self._register_hooks()

    # ---- the end of backward ----

    def _expect_end_of_backward(self):
        task = current_backward()
        if task < 0 or task in self._tasks:
            return
        self._is_nested = is_nested_backward()
        if not self._is_nested:
            self._tasks.clear()  # of one that failed: what it started stays
            self._at_risk.clear()
        if self._arena is not None and not self._staged:  # it is the first of a backward
            self._arena.reclaim()
        self._tasks.add(task)
        this = weakref.ref(self)

        def on_end():
            optimizer = this()
            if optimizer is not None:
                optimizer._on_end_of_backward(task)

        at_end_of_backward(on_end)

    def _on_end_of_backward(self, task):
        self._tasks.discard(task)
        if is_nested_backward():
            self._is_nested = False
            for p in self._staged:  # the outer one may not touch a parameter of ours
                self._defer(p)
            return
        self._tasks.clear()
        self._at_risk.clear()
        self._notice_parameters()
        if self._run_rounds(self._patience_ms):
            self._patience_ms = min(_PATIENCE_MS, self._patience_ms * 2)
            return
        # Perhaps another rank waits for something that comes after this backward.
        self._patience_ms = max(1, self._patience_ms // 8)
        for p in self._handles:
            self._defer(p)

    def _settle(self, is_reset):
        """A script looks at a gradient before it is reduced."""
        if current_backward() >= 0 or (is_reset and not self._handles):
            return
        self._finish()

    def _finish(self):
        """Reduce what there is, though this rank is not in step() yet."""
        if not self._run_rounds(self._patience_ms):
            self._meet(is_final=False)

    # ---- the end of a turn ----

    def synchronize(self):
        """Make sure that all gradients are reduced; `step()` does it by itself."""
        self._check_era()
        if self._is_active:
            self._notice_parameters()
            if self._requires_update:
                self._end_turn()
        self._synchronized = True

    def _end_turn(self):
        self._tasks.clear()
        self._at_risk.clear()
        self._is_ending = True
        self._brought = (self._round + self._has_news(), self._has_changed())
        words = self._meet(is_final=True)
        for p in self._dense_now:
            p.grad = plain_grad(p).to_sparse(1)
        turn = max(word.turn for word in words if word is not None)
        conflict = find_conflict(words, self._ranks(), f"the optimizer of {self._first_name}")
        self._start_over()
        self._turn = turn + 1
        if conflict is not None:
            raise HorovodInternalError(conflict)

    def _meet(self, is_final):
        """Reduce what there is, together with ranks that are in another place.

        A rank that is in step() comes here with its final word, runs the rounds that others have
        run, with zeros, and leaves when all words are final; it returns them. One whose script
        looks at a gradient before step() comes with another word and leaves as soon as its own
        rounds are complete, perhaps before that word is answered.
        """
        rounds, words, waiting = 0, None, LongWait()
        with self._errors():
            while not (words and is_final and all(w.is_final for w in words if w is not None)):
                self._start_missing(self._next_target() or min(self._round + 1, rounds))
                if not is_final and not self._handles:
                    return None
                words = self._take_words(is_final)
                if words is None:
                    if self._handles and self._have_ended(_GLANCE_MS):
                        self._wait_all()
                        waiting = LongWait()
                    elif self._word is not None:
                        waiting.look([*self._in_flight(), self._word.handle])
                    continue
                present = [word for word in words if word is not None]
                if any(word.is_asking for word in present):
                    self._exchange_kinds()
                rounds = max(word.rounds for word in present) if is_final else 0
            while self._handles or self._round < rounds or self._next_target() > 0:
                self._start_missing(self._next_target() or min(self._round + 1, rounds))
                self._wait_all()
        return words

    def _ranks(self):
        return self.process_set.ranks or range(self.process_set.size())

    def _take_words(self, is_final):
        """The words of all ranks (None: it has joined); None if they are not here yet."""
        count = self.process_set.size()
        if self._word is None:
            is_asking = len(self._kinds) < len(self._requires_update)
            rounds, is_changed = self._round + self._has_news(), False
            if is_final:
                rounds, is_changed = self._brought
            mine = Word(self._turn, rounds, self._discards, is_final, is_asking, is_changed)
            if count == 1:
                return [mine]
            if self._words is None:
                self._words = torch.zeros(count, dtype=torch.int64)
            self._words.zero_()
            self._words[self.process_set.rank()] = mine.pack()
            self._word = _WordHandle(self._sum_async(self._words, "turn", Sum))
        if not native.have_ended([self._word.handle], _GLANCE_MS if self._handles else _LOOK_MS):
            return None
        synchronize(self._word.handle)
        self._word = None
        return [Word.unpack(value) for value in self._words.tolist()]

    def _has_changed(self):
        """Has the script put something else into a gradient since it was reduced?"""
        for p, (grad, version) in self._results.items():
            if plain_grad(p) is not grad or (grad is not None and grad._version != version):
                return True
        return False

    def _sum_async(self, tensor, name, op):
        name = f"DistributedOptimizer.{name}.{self._first_name}"
        return _allreduce_async(tensor, tensor, name, op, 1.0, 1.0, self.process_set, _WAITED)

    def _exchange_kinds(self):
        """Agree which parameters are reduced at all, and which of them as sparse ones.

        A parameter that any rank has started with a gradient is dense. If all that have a gradient
        of it have a sparse one, it is sparse from now on, also on ranks without a gradient; if one
        of those has started it with zeros, it is still reduced as a dense one in this turn.
        """
        mine = []
        for p in self._parameter_names:
            kind = self._kinds.get(p)
            is_started = p in self._sent and kind is None
            is_dense = kind == _DENSE or (is_started and p not in self._blank)
            is_sparse = kind == _SPARSE or (p.grad is not None and p.grad.is_sparse)
            mine.append((p in self._requires_update, is_started, is_dense, is_sparse))
        flags = torch.tensor(mine, dtype=torch.int32)
        synchronize(self._sum_async(flags, "kinds", Max))
        for p, row in zip(list(self._parameter_names), flags.tolist(), strict=True):
            is_reduced, is_started, is_dense, is_sparse = row
            if not is_reduced or p in self._kinds:
                continue
            if p not in self._requires_update:
                self._asleep = [q for q in self._asleep if q is not p]
                self._adopt(p)
            is_dense = self.sparse_as_dense or is_dense or not is_sparse
            self._kinds[p] = _DENSE if is_dense else _SPARSE
            if is_started and not is_dense:
                self._dense_now.add(p)

    # ---- what users call ----

    @contextmanager
    def skip_synchronize(self):
        """`step()` in this context does not synchronize: you have called `synchronize()` before.

        optimizer.synchronize()
        with optimizer.skip_synchronize():
            optimizer.step()
        """
        self._should_synchronize = False
        try:
            yield
        finally:
            self._should_synchronize = True

    def step(self, closure=None):
        if self._should_synchronize:
            if self._synchronized:
                warnings.warn(_STEP_TEXT)
            self.synchronize()
        self._synchronized = False
        return super(self.__class__, self).step(closure)

    def zero_grad(self, *args, **kwargs):
        self._check_era()
        if self._is_active:
            self._throw_away()
        return super(self.__class__, self).zero_grad(*args, **kwargs)

    def _throw_away(self):
        """The gradients so far are not wanted, nor is what the other ranks have added to them."""
        has_failed = bool(self._tasks) and current_backward() < 0
        if has_failed and not self._is_complete():
            self._take_back()
        elif self._targets:
            if self._handles:
                self._finish()
            self._discards |= discard_bit(self._round)
            self._targets.clear()
            self._extra.clear()
        for p in self._counted:
            plain_grad(p)
        self._results.clear()
        self._counted.clear()
        self._staged.clear()
        self._aside.clear()
        self._tasks.clear()
        self._at_risk.clear()
        for group in self._group_counts:
            self._group_counts[group] = 0
        for p in self._allreduce_delay:
            self._allreduce_delay[p] = self.backward_passes_per_step

    def _is_complete(self):
        return self._round > 0 and self._reached == len(self._requires_update)

    def _take_back(self):
        """A backward failed on this rank; what it had started already is subtracted again."""
        for p, contribution in self._at_risk.items():
            if p in self._targets:
                self._extra[p] = contribution.neg()
                self._void.add(p)
        for p in self._targets:
            p.grad = None


class _WordHandle:
    """The handle of a word. Who drops it before the answer leaves the name to the next one."""

    def __init__(self, handle):
        self.handle = handle

    def __del__(self):
        if self.handle in _handles.entries:
            _handles.abandon([self.handle])


class _GroupHandle:
    """One handle for several parameters: whoever asks first waits."""

    def __init__(self, handle):
        self.handles = [handle]
        self._results = None

    def part(self, index):
        def finish():
            if self._results is None:
                self._results = synchronize(self.handles[0])
            return self._results[index]

        finish.handles = self.handles
        return finish


class _DistributedAdasumOptimizer(torch.optim.Optimizer):
    """Adasum combines what the ranks would have changed, not their gradients.

    When a gradient is ready, the wrapped optimizer steps that parameter alone; the difference to
    where it started is reduced, and step() applies it there.
    """

    def __init__(self, params, *args, **kwargs):
        super(self.__class__, self).__init__(params)
        self._set_up(*args, **kwargs)

    def _set_up(self, named_parameters, compression, backward_passes_per_step=1):
        self._parameter_names = _read_names(
            self.param_groups, named_parameters, lambda i, j: f"allreduce.noname.{j}"
        )
        self._compression = compression
        self.backward_passes_per_step = backward_passes_per_step
        self._allreduce_delay = dict.fromkeys(self._parameter_names, backward_passes_per_step)
        self._handles = {}
        self._grad_accs = []
        self._requires_update = {}
        self._synchronized = False
        self._should_synchronize = True
        self._starting_models = {}
        self._adopt_parameters(is_first=True)

    def set_backward_passes_per_step(self, passes):
        self.backward_passes_per_step = passes
        for p in self._allreduce_delay:
            self._allreduce_delay[p] = passes

    def _adopt_parameters(self, is_first=False):
        """All that need a gradient are reduced from now on, also those unfrozen or added later."""
        this = weakref.ref(self)
        for i, group in enumerate(self.param_groups):
            for j, p in enumerate(group["params"]):
                if p not in self._starting_models:
                    self._starting_models[p] = torch.zeros_like(p, requires_grad=False)
                    self._parameter_names.setdefault(p, f"allreduce.noname.{i}.{j}")
                    self._allreduce_delay.setdefault(p, self.backward_passes_per_step)
                if p.requires_grad and p not in self._requires_update:
                    if is_first:
                        p.grad = torch.zeros_like(p, requires_grad=False)
                    self._requires_update[p] = True
                    self._grad_accs.append(_hook_gradient(p, _DistributedOptimizer._hook(this, p)))

    def _make_hook(self, p):
        return _DistributedOptimizer._hook(weakref.ref(self), p)

    def _on_gradient(self, p):
        handle, _ = self._handles.get(p, (None, None))
        if handle is not None or self._allreduce_delay[p] <= 0:
            raise AssertionError(_TOO_MANY_PASSES)
        self._allreduce_delay[p] -= 1
        self._handles[p] = (None, None)
        if self._allreduce_delay[p] == 0:
            self._handles[p] = self._allreduce_grad_async(p)

    def _allreduce_grad_async(self, p):
        """Step this parameter alone and start reducing by how much it moved."""
        start = self._starting_models[p]
        stashed = [group["params"] for group in self.param_groups]
        if p.grad is None:
            p.grad = torch.zeros_like(p, requires_grad=False)
        with torch.no_grad():
            start.copy_(p)
        for group in self.param_groups:
            group["params"] = [q for q in group["params"] if q is p]
        try:
            super(self.__class__, self).step()
        finally:
            for group, params in zip(self.param_groups, stashed, strict=True):
                group["params"] = params
        with torch.no_grad():
            delta, ctx = self._compression.compress(p.detach() - start)
            p.copy_(start)
        name = self._parameter_names[p]
        handle = _allreduce_async(delta, delta, name, Adasum, 1.0, 1.0, global_process_set)
        return handle, ctx

    def synchronize(self):
        """Nothing to do: what is reduced is not the gradient."""

    def skip_synchronize(self):
        raise AssertionError(
            "Skipping synchronization is not supported when using Adasum optimizer."
        )

    def step(self, closure=None):
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._adopt_parameters()
        for p in self._requires_update:
            if self._handles.get(p, (None, None))[0] is None:
                self._handles[p] = self._allreduce_grad_async(p)
        with torch.no_grad():
            for p, (handle, ctx) in self._handles.items():
                delta = self._compression.decompress(synchronize(handle), ctx)
                p.copy_(self._starting_models[p].add_(delta))
                self._allreduce_delay[p] = self.backward_passes_per_step
        self._handles.clear()
        return loss

    def zero_grad(self, *args, **kwargs):
        if self._handles:
            raise AssertionError(_ZERO_GRAD_TEXT)
        return super(self.__class__, self).zero_grad(*args, **kwargs)


def DistributedOptimizer(  # noqa: N802 - the name that scripts use
    optimizer: torch.optim.Optimizer,
    named_parameters: Iterable[tuple[str, torch.Tensor]] | None = None,
    compression: type[Compressor] = Compression.none,
    backward_passes_per_step: int = 1,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: int | list | None = None,
    sparse_as_dense: bool = False,
    process_set: ProcessSet = global_process_set,
) -> torch.optim.Optimizer:
    """Wrap a torch.optim optimizer so that gradients are reduced over all ranks before its step.

    optimizer: any optimizer of torch.optim, or a subclass.
    named_parameters: usually model.named_parameters(); names must be equal on all ranks.
    compression: hvd.Compression.none, .fp16 or .bf16, or a Compressor of your own.
    backward_passes_per_step: backward passes whose gradients are summed locally first.
    op: hvd.Average, hvd.Sum or hvd.Adasum.
    gradient_predivide_factor: splits the averaging into a division before and one after the sum.
    groups: a number of groups, or lists of parameters, that are reduced as one unit each.
    sparse_as_dense: turn sparse gradients into dense ones first.
    process_set: the ranks to reduce over; the others train on their own.
    """
    if gradient_predivide_factor != 1.0:
        if rocm_built():
            raise ValueError("gradient_predivide_factor not supported yet with ROCm")
        if op != Average:
            raise ValueError("gradient_predivide_factor not supported with op != Average")
    if num_groups != 0:
        warnings.warn(
            "Parameter `num_groups` has been replaced by `groups` and will be removed in v0.23.0.",
            DeprecationWarning,
        )
        if groups is None:
            groups = num_groups
    if backward_passes_per_step <= 0:
        raise ValueError("backward_passes_per_step must be > 0")

    if op != Adasum or size() == 1:
        wrapped = _make_wrapped(optimizer, _DistributedOptimizer)
        wrapped._set_up(
            *(named_parameters, compression, backward_passes_per_step, op),
            *(gradient_predivide_factor, groups, sparse_as_dense, process_set),
        )
        return wrapped
    if process_set.process_set_id != 0:
        raise NotImplementedError("Adasum does not support non-global process sets yet.")
    wrapped = _make_wrapped(optimizer, _DistributedAdasumOptimizer)
    wrapped._set_up(named_parameters, compression, backward_passes_per_step)
    return wrapped


def _make_wrapped(optimizer, attributes):
    """An optimizer of a class made from the given one's, with its parameters, options and state.

    The constructor of that class is not called: it may want arguments that only the user knows.
    """
    base = optimizer.__class__
    if base.__module__ == __name__:
        raise TypeError(f"This {base.__name__} is a DistributedOptimizer already.")
    cls = type(base.__name__, (base,), dict(attributes.__dict__))
    wrapped = cls.__new__(cls)
    for name, value in optimizer.__dict__.items():
        # A scheduler puts a wrapped step() into the object it watches; ours must be found.
        if not (callable(value) and hasattr(cls, name)):
            wrapped.__dict__[name] = value
    return wrapped
