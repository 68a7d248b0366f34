# SPDX-License-Identifier: Apache-2.0
"""hvd.DistributedOptimizer: an optimizer whose gradients are reduced over all ranks.

A gradient's way: backward finishes it, a hook copies it once into memory that the peers reach, and
its allreduce starts: at once where a core is free for it or the network does the waiting, so that
it runs while backward goes on; otherwise when backward ends, in the thread that then waits for it
anyway. Either way the end of backward waits for all of them. So `p.grad` holds the reduced gradient
as soon as `backward()` returns: clipping, GradScaler and whatever else looks at gradients work
without further calls, and `synchronize()` in `step()` usually finds nothing left to do.

A round is one allreduce of every parameter. The last of `backward_passes_per_step` backward passes
starts one; so does each further pass before `step()`, which for averages is right, because the
average of (reduced + new) is (reduced + average of new).

Start reading at `_DistributedOptimizer._on_gradient`.
"""

import os
import sys
import warnings
import weakref
from contextlib import contextmanager

import torch

from horovod.common.exceptions import HorovodInternalError
from horovod.common.library import native
from horovod.common.process_sets import global_process_set
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
    _allreduce_async,
    _grouped_allreduce_async,
    _orphans,
    _set_id,
    is_initialized,
    local_size,
    rocm_built,
    size,
    sparse_allreduce_async,
    synchronize,
)

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
_IN_ROUND = object()  # stands for a handle in _round
_BACKWARD_CODE = getattr(
    getattr(torch.autograd.graph, "_engine_run_backward", None), "__code__", None
)


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


# ---- backward ----


def _has_spare_core():
    """Is a core left for the engine's thread while every rank of this host computes?"""
    total = os.cpu_count() or 1
    mine = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else total
    if mine * local_size() <= total:  # bound to cores of its own
        return mine > torch.get_num_threads()
    return mine >= local_size() * (torch.get_num_threads() + 1)


def _is_nested_backward():
    """Are we inside a backward that another backward called (re-entrant checkpointing)?"""
    if _BACKWARD_CODE is None:
        return False
    depth, frame = 0, sys._getframe(1)
    while frame is not None:
        depth += frame.f_code is _BACKWARD_CODE
        frame = frame.f_back
    return depth > 1


def _hook_gradient(p, function):
    """Call function() when backward has finished p.grad; returns something that keeps the hook."""
    if hasattr(p, "register_post_accumulate_grad_hook"):
        return p.register_post_accumulate_grad_hook(lambda _: function())
    accumulator = p.expand_as(p).grad_fn.next_functions[0][0]
    accumulator.register_hook(lambda *_: function())
    return accumulator


class _DistributedOptimizer(torch.optim.Optimizer):
    """Its attributes go into a class made for the wrapped optimizer; see DistributedOptimizer."""

    def __init__(
        self,
        params,
        named_parameters,
        compression,
        backward_passes_per_step=1,
        op=Average,
        gradient_predivide_factor=1.0,
        groups=None,
        sparse_as_dense=False,
        process_set=global_process_set,
    ):
        super(self.__class__, self).__init__(params)
        self._parameter_names = _read_names(
            self.param_groups, named_parameters, lambda i, j: f"allreduce.noname.{i}.{j}"
        )
        self._compression = compression
        self.backward_passes_per_step = backward_passes_per_step
        self._allreduce_delay = dict.fromkeys(self._parameter_names, backward_passes_per_step)
        self.op = op
        self.gradient_predivide_factor = gradient_predivide_factor
        self.sparse_as_dense = sparse_as_dense
        self.process_set = process_set

        # {p: (handle, ctx)}: in flight, or counted and not started if the handle is None. A handle
        # is a number or a function that waits; ctx is what to do with the result, if anything.
        self._handles = {}
        # {p: (gradient, what to reduce, ctx)}: in place, to be started when backward ends.
        self._staged = {}
        self._round = []  # handles of gradients in the arena that were started together
        self._is_overlapping = None  # are allreduces started while backward goes on?
        self._reduced = {}  # since the last synchronize(): {p: gradient that holds the result}
        self._sparse_seen = set()
        self._backward_tasks = set()
        self._grad_accs = []
        self._requires_update = {}  # in order, which a set would not keep
        self._synchronized = False
        self._should_synchronize = True
        self._arena = None
        _check_groups(groups)
        self._groups = groups
        self._p_to_group = {}
        self._group_counts = {}
        self._group_members = {}

        if self.process_set.included() and (size() > 1 or os.environ.get("HOROVOD_ELASTIC") == "1"):
            self._register_hooks()

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

    # ---- set-up ----

    def _register_hooks(self):
        self._set_up_groups()
        this = weakref.ref(self)
        for group in self.param_groups:
            for p in group["params"]:
                if p.requires_grad:
                    self._requires_update[p] = True
                    self._grad_accs.append(_hook_gradient(p, _DistributedOptimizer._hook(this, p)))

    @staticmethod
    def _hook(this, p):
        """A hook that does not keep the optimizer alive."""

        def hook():
            optimizer = this()
            if optimizer is not None:
                optimizer._on_gradient(p)

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

    def _on_gradient(self, p):
        handle, _ = self._handles.get(p, (None, None))
        if handle is not None:
            raise AssertionError(_TOO_MANY_PASSES)
        delay = self._allreduce_delay[p]
        if delay > 0:
            self._allreduce_delay[p] = delay = delay - 1
            if delay > 0:
                self._handles[p] = (None, None)
                return
        elif self.op != Average and (p in self._staged or p.grad is self._reduced.get(p)):
            raise AssertionError(_TOO_MANY_PASSES)
        group = self._p_to_group.get(p)
        if not self._starts_at_once(p):
            self._stage(p)
        elif group is None:
            self._handles[p] = self._allreduce_grad_async(p)
        else:
            self._count_group(p, group)
        self._expect_end_of_backward()

    def _starts_at_once(self, p):
        if p.device.type != "cpu":
            return True
        if self._is_overlapping is None:
            self._is_overlapping = size() > local_size() or _has_spare_core()
        return self._is_overlapping

    def _stage(self, p):
        """Put the gradient in place while it is in the cache."""
        if self._is_sparse(p) and not self.sparse_as_dense:
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

    def _count_group(self, p, group):
        self._handles[p] = (None, None)
        self._group_counts[group] += 1
        if self._group_counts[group] == len(group):
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
            parameters = self._requires_update if self._has_arena() else ()
            self._arena = GradientArena(parameters, _DTYPES, cast)
        return self._arena.views, self._arena.wires

    def _has_arena(self):
        return self._compression is Compression.none or self._compression in _CAST_DTYPES

    def _wire(self, p):
        """(what to reduce in place, function that makes the result p.grad or None if it is)."""
        grad = p.grad
        if grad is None:
            # Another rank may have a gradient for it.
            p.grad = grad = torch.zeros_like(p, requires_grad=False)
        elif grad.requires_grad:
            p.grad = grad = grad.detach()
        if grad.is_sparse:
            return self._dense_wire(p, grad)
        views, wires = self._views()
        view = views.get(p)
        if view is not None and (self._compression is not Compression.none):
            view.copy_(grad)
            return wires[p], lambda _: grad.copy_(view)
        if view is not None and view.dtype == grad.dtype and grad.device.type == "cpu":
            if grad is not view:
                copy_into(view, grad)
                p.grad = view
            return wires[p], None
        if self._compression is not Compression.none:
            wire, ctx = self._compression.compress(grad)
            return wire, lambda result: grad.set_(self._compression.decompress(result, ctx))
        if not grad.is_contiguous():
            flat = flat_view(grad)
            return (flat if flat is not None else grad), None
        return grad, None

    def _dense_wire(self, p, grad):
        """A sparse gradient, reduced as a dense one."""
        wire, ctx = self._compression.compress(grad.to_dense())

        def finish(result):
            p.grad = self._compression.decompress(result, ctx).to_sparse()

        return wire, finish

    def _allreduce_grad_async(self, p, flags=_HOLD):
        """Start the allreduce of p.grad; returns (handle, ctx)."""
        name = self._parameter_names[p]
        if self._is_sparse(p) and not self.sparse_as_dense:
            self._staged.pop(p, None)
            return self._sparse_allreduce_grad_async(p, name)
        wire, finish = self._take_staged(p)
        prescale, postscale = self._scale_factors()
        handle = _allreduce_async(
            wire, wire, name, self.op, prescale, postscale, self.process_set, flags
        )
        return handle, finish

    def _is_sparse(self, p):
        if p.grad is None:
            return p in self._sparse_seen
        if p.grad.is_sparse:
            self._sparse_seen.add(p)
            return True
        return False

    def _sparse_allreduce_grad_async(self, p, name):
        if p.grad is None:
            p.grad = torch.zeros_like(p, requires_grad=False).to_sparse(1)
        handle = sparse_allreduce_async(p.grad, name=name, op=self.op, process_set=self.process_set)

        def finish(result):
            p.grad = result

        return handle, finish

    def _grouped_allreduce_grad_async(self, ps):
        """Start the allreduces of a group; returns (handle, ctx) for each."""
        name = self._parameter_names[ps[0]]
        if any(self._is_sparse(p) for p in ps) and not self.sparse_as_dense:
            return [self._allreduce_grad_async(p) for p in ps]
        wires, finishes = zip(*(self._take_staged(p) for p in ps), strict=True)
        prescale, postscale = self._scale_factors()
        wires = list(wires)
        handle = _grouped_allreduce_async(
            wires, wires, name, self.op, prescale, postscale, self.process_set
        )
        group = _GroupHandle(handle)
        return [((lambda i=i: group.result(i)), finish) for i, finish in enumerate(finishes)]

    # ---- the end of backward ----

    def _expect_end_of_backward(self):
        task = torch._C._current_graph_task_id()
        if task < 0 or task in self._backward_tasks:
            return
        self._backward_tasks.add(task)
        this = weakref.ref(self)

        def on_end():
            optimizer = this()
            if optimizer is not None:
                optimizer._on_end_of_backward(task)

        torch.autograd.Variable._execution_engine.queue_callback(on_end)

    def _on_end_of_backward(self, task):
        self._backward_tasks.discard(task)
        if _is_nested_backward():
            return
        # Of anything but an average, another pass may bring the rest; step() does not wait for it.
        if self.op == Average or all(map(self._is_started, self._requires_update)):
            self._start_missing()
            self._wait_all()

    def _is_started(self, p):
        return p in self._staged or self._is_in_flight(p)

    def _is_in_flight(self, p):
        return self._handles.get(p, (None, None))[0] is not None

    def _start_missing(self):
        """Start the allreduce of every parameter that is not in flight, to complete the round.

        Whoever calls this waits at once, so the engine's thread need not hear of it.
        """
        done_groups = set()
        together = []
        _, wires = self._views()
        for p in reversed(self._requires_update):
            if self._is_in_flight(p):
                continue
            self._allreduce_delay[p] = 0
            group = self._p_to_group.get(p)
            if group is not None:
                if group not in done_groups:
                    done_groups.add(group)
                    self._start_group(group)
            elif p in wires and not self._is_sparse(p):
                together.append(p)
            else:
                self._handles[p] = self._allreduce_grad_async(p, _WAITED)
        if together:
            self._start_together(together, wires)

    def _start_together(self, ps, wires):
        """Start gradients that have their place in the arena, by one call."""
        names, tensors = [], []
        for p in ps:
            wire, finish = self._take_staged(p)
            if wire is not wires[p]:  # it has changed its type or device
                self._staged[p] = (p.grad, wire, finish)
                self._handles[p] = self._allreduce_grad_async(p, _WAITED)
                continue
            self._handles[p] = (_IN_ROUND, finish)
            names.append("allreduce." + self._parameter_names[p])
            tensors.append(wire)
        scales = self._scale_factors()
        where = (_set_id(self.process_set), self.op, *scales)
        try:
            native.submit_each(self._round, native.ALLREDUCE, names, *where, tensors, _WAITED)
        except RuntimeError as error:
            self._give_up()
            raise HorovodInternalError(error)  # noqa: B904 - scripts look at the context
        except BaseException:
            self._give_up()
            raise

    def _wait_all(self):
        try:
            if self._round:
                native.finish_each(self._round)
                self._round.clear()
            for p, (handle, finish) in self._handles.items():
                if handle is None:
                    continue
                result = None
                if handle is not _IN_ROUND:
                    result = handle() if callable(handle) else synchronize(handle)
                if finish is not None:
                    finish(result)
                self._reduced[p] = p.grad
        except native.StatusError as error:
            self._round.clear()  # all have ended
            self._drain()
            self._start_over()
            raise HorovodInternalError(error)  # noqa: B904
        except HorovodInternalError:
            self._drain()
            self._start_over()
            raise
        except BaseException:
            self._give_up()
            raise
        self._handles.clear()

    def _give_up(self):
        """Without waiting: nothing of this round counts, but some of it may still be running."""
        for handle in self._round:
            native.release(handle)
        if self._round:
            _orphans.append(self._arena)
            self._round.clear()
        self._start_over()

    # ---- what users call ----

    def synchronize(self):
        """Make sure that all gradients are reduced; `step()` does it by itself."""
        if not self.process_set.included():
            self._synchronized = True
            return
        if any(p not in self._reduced or p in self._handles for p in self._requires_update):
            self._start_missing()
            self._wait_all()
        self._start_over()
        self._synchronized = True

    def _start_over(self):
        """The next backward begins a new step."""
        self._handles.clear()
        self._staged.clear()
        self._reduced.clear()
        self._backward_tasks.clear()
        for group in self._group_counts:
            self._group_counts[group] = 0
        for p in self._allreduce_delay:
            self._allreduce_delay[p] = self.backward_passes_per_step
        if self._arena is not None and not self._arena.views and is_initialized():
            self._arena = None
            self._is_overlapping = None  # it may be another world

    def _drain(self):
        """Wait for what is in flight, whatever comes of it: its memory may be used again."""
        for handle, _ in list(self._handles.values()):
            try:
                if handle is _IN_ROUND:
                    continue
                if callable(handle):
                    handle()
                elif handle is not None:
                    synchronize(handle)
            except Exception:  # noqa: BLE001 - the caller starts over
                pass

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
        if any(handle is not None for handle, _ in self._handles.values()):
            raise AssertionError(_ZERO_GRAD_TEXT)
        self._start_over()
        return super(self.__class__, self).zero_grad(*args, **kwargs)


class _GroupHandle:
    """One handle for several parameters: whoever asks first waits."""

    def __init__(self, handle):
        self._handle = handle
        self._results = None

    def result(self, index):
        if self._results is None:
            self._results = synchronize(self._handle)
        return self._results[index]


class _DistributedAdasumOptimizer(torch.optim.Optimizer):
    """Adasum combines what the ranks would have changed, not their gradients.

    When a gradient is ready, the wrapped optimizer steps that parameter alone; the difference to
    where it started is reduced, and step() applies it there.
    """

    def __init__(self, params, named_parameters, compression, backward_passes_per_step=1):
        super(self.__class__, self).__init__(params)
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
        self._starting_models = {
            p: torch.zeros_like(p, requires_grad=False)
            for group in self.param_groups
            for p in group["params"]
        }
        self._register_hooks()

    def set_backward_passes_per_step(self, passes):
        self.backward_passes_per_step = passes
        for p in self._allreduce_delay:
            self._allreduce_delay[p] = passes

    def _register_hooks(self):
        this = weakref.ref(self)
        for group in self.param_groups:
            for p in group["params"]:
                if p.requires_grad:
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
    optimizer,
    named_parameters=None,
    compression=Compression.none,
    backward_passes_per_step=1,
    op=Average,
    gradient_predivide_factor=1.0,
    num_groups=0,
    groups=None,
    sparse_as_dense=False,
    process_set=global_process_set,
):
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

    base = optimizer.__class__
    if op != Adasum or size() == 1:
        cls = type(base.__name__, (base,), dict(_DistributedOptimizer.__dict__))
        return cls(
            optimizer.param_groups,
            named_parameters,
            compression,
            backward_passes_per_step,
            op,
            gradient_predivide_factor,
            groups,
            sparse_as_dense,
            process_set,
        )
    if process_set.process_set_id != 0:
        raise NotImplementedError("Adasum does not support non-global process sets yet.")
    cls = type(base.__name__, (base,), dict(_DistributedAdasumOptimizer.__dict__))
    return cls(optimizer.param_groups, named_parameters, compression, backward_passes_per_step)
