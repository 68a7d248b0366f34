# SPDX-License-Identifier: Apache-2.0
"""The process group of the backend: every collective of torch.distributed, on the core's own.

All ranks of a group call its collectives in the same order, which torch.distributed demands. So an
operation is named by its position in that order (order.py), and the core compares what must be
equal on all ranks. Two operations of one name are never in flight together; the second waits
(work.py).

The core reduces and moves dense tensors. Others are copied before and after. Where bytes are only
moved, they travel as bytes, so every type can be gathered, sent or broadcast. What the core does
not reduce itself (bit operations, rare types) is gathered and reduced here.

Ranks in the core's sets are in ascending order. A group may have another order: `_places` says at
which place of the set each rank of the group is.

Start reading at `HorovodProcessGroup.allreduce` and `_run`.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch.distributed import ReduceOp

from horovod.common.library import native
from horovod.torch.distributed.messages import Messages
from horovod.torch.distributed.tensors import (
    Reduction,
    as_bytes,
    flatten,
    is_same,
    only_one,
    take_result,
    write_to,
)
from horovod.torch.distributed.work import HorovodWork, Task, make_error

_Op = ReduceOp.RedOpType


class HorovodProcessGroup(Messages):
    """A torch.distributed process group whose collectives run on Horovod's engine."""

    # ---- allreduce ----

    def _reduce_task(self, flat: torch.Tensor, how: Reduction, output: torch.Tensor) -> Task:
        assert how.core is not None
        key = ("r", how.core, flat.dtype, flat.numel())
        return self._task(native.ALLREDUCE, key, how.core, (1.0, 1.0), 0, flat, output)

    def _gather_task(self, flat: torch.Tensor, what: str = "g", output: Any = None) -> Task:
        """All ranks give as many bytes: one row each, whose length the core compares."""
        raw = as_bytes(flat).view(1, -1) if flat.numel() > 0 else as_bytes(flat).view(1, 0)
        take = take_result(torch.uint8)
        return self._task(
            *(native.ALLGATHER, (what, raw.numel()), native.SUM, (1.0, 1.0), 0, raw, output),
            finish=None if output is not None else lambda handle: take(handle).reshape(-1),
        )

    def _allreduce(
        self, tensor: torch.Tensor, op: Any, opts: Any, root: int | None = None
    ) -> HorovodWork:
        """`root`: the only rank that gets the result; None: all do."""
        if tensor.is_sparse:
            return self._allreduce_sparse(tensor, op, opts)
        how = Reduction.of(op, tensor.dtype, self._my_size)
        flat = flatten(tensor)
        is_mine = root is None or root == self._my_rank
        outputs = [tensor]
        if how.core is None:
            count = flat.numel()

            def fold(tasks: Sequence[Task]) -> None:
                rows = tasks[0].result.view(flat.dtype)
                if is_mine:
                    factor = 1 if how.factor is None else how.factor
                    parts = [rows[i * count : (i + 1) * count] for i in range(self._my_size)]
                    write_to(
                        tensor, how.fold([p * factor for p in parts] if factor != 1 else parts)
                    )

            return self._run("all_reduce", [self._gather_task(flat, "f")], outputs, opts, fold)
        wire = how.prepare(flat)
        is_own = wire.data_ptr() != tensor.data_ptr()
        place = wire if is_mine or is_own else torch.empty_like(wire)

        def write(tasks: Sequence[Task]) -> None:
            if is_mine:
                how.average(place)
                write_to(tensor, place)

        task = self._reduce_task(wire, how, place)
        needs_end = how.is_average or is_own
        return self._run("all_reduce", [task], outputs, opts, write if needs_end else None)

    def _allreduce_sparse(self, tensor: torch.Tensor, op: Any, opts: Any) -> HorovodWork:
        how = Reduction.of(op, tensor.dtype, self._my_size)
        if how.kind not in (_Op.SUM, _Op.AVG):
            raise RuntimeError(f"Sparse tensors can only be summed, not reduced with {how.kind}.")
        whole = tensor.detach().coalesce()
        indices = whole.indices().t().contiguous()
        values = whole.values().contiguous()
        row = values[0:1].numel() if values.shape[0] else int(values.shape[1:].numel())

        def gather(what: str, rows: torch.Tensor, width: int) -> Task:
            raw = as_bytes(rows.reshape(-1)).view(-1, width)
            key = (what, width)
            return self._task(
                *(native.ALLGATHER, key, native.SUM, (1.0, 1.0), 0, raw, None),
                finish=take_result(torch.uint8),
            )

        def add_up(tasks: Sequence[Task]) -> None:
            where = tasks[0].result.reshape(-1).view(torch.int64).view(-1, indices.shape[1])
            what = tasks[1].result.reshape(-1).view(values.dtype).view(-1, *values.shape[1:])
            total = torch.sparse_coo_tensor(where.t(), what, tensor.shape).coalesce()
            if how.kind == _Op.AVG:
                total = total / self._my_size
            with torch.no_grad():
                tensor.copy_(total)

        tasks = [
            gather("si", indices, indices.shape[1] * 8),
            gather("sv", values, row * values.element_size()),
        ]
        return self._run("all_reduce", tasks, [tensor], opts, add_up)

    def allreduce(self, tensors: Any, opts: Any = None, timeout: Any = None) -> HorovodWork:
        """Reduce a tensor in place on all ranks."""
        op, opts = self._read_op(opts, timeout)
        return self._allreduce(only_one(tensors, "all_reduce"), op, opts)

    @staticmethod
    def _read_op(opts: Any, timeout: Any = None) -> tuple[Any, Any]:
        """Callers give options, or the reduction itself."""
        if opts is None:
            return ReduceOp.SUM, timeout
        if isinstance(opts, (ReduceOp, _Op)):
            return opts, timeout
        return opts.reduceOp, opts

    def allreduce_coalesced(self, tensors: Sequence[torch.Tensor], opts: Any = None) -> Any:
        """Reduce several tensors in place."""
        op, opts = self._read_op(opts)
        works = (self._allreduce(tensor, op, opts) for tensor in tensors)
        return self._many("all_reduce_coalesced", works, list(tensors), opts)

    def reduce(self, tensors: Any, opts: Any = None, op: Any = None, timeout: Any = None) -> Any:
        """Reduce a tensor to one rank; the others keep theirs."""
        if isinstance(opts, int):
            root, op, opts = opts, op or ReduceOp.SUM, timeout
        else:
            root, op = opts.rootRank, opts.reduceOp
        self._set_root(root)
        return self._allreduce(only_one(tensors, "reduce"), op, opts, root)

    # ---- broadcast ----

    def broadcast(self, tensors: Any, opts: Any = None, timeout: Any = None) -> HorovodWork:
        """Copy a tensor of one rank to all."""
        root = opts if isinstance(opts, int) else opts.rootRank if opts is not None else 0
        opts = timeout if isinstance(opts, int) else opts
        tensor = only_one(tensors, "broadcast")
        world_root = self._set_root(root)
        raw = as_bytes(flatten(tensor))
        key = ("b", root, raw.numel())
        task = self._task(native.BROADCAST, key, native.SUM, (1.0, 1.0), world_root, raw, raw)
        is_copy = not is_same(raw, tensor) and root != self._my_rank

        def write(tasks: Sequence[Task]) -> None:
            write_to(tensor, raw)

        return self._run("broadcast", [task], [tensor], opts, write if is_copy else None)

    # ---- gathering ----

    def _allgather_into(
        self, output: torch.Tensor, tensor: torch.Tensor, opts: Any, what: str = "all_gather"
    ) -> HorovodWork:
        flat = flatten(tensor)
        if output.dtype != tensor.dtype:
            raise ValueError(f"{what}: the output is {output.dtype}, the input {tensor.dtype}.")
        if output.numel() != tensor.numel() * self._my_size:
            raise ValueError(
                f"{what}: the output has {output.numel()} elements; {self._my_size} ranks with "
                f"{tensor.numel()} each need {tensor.numel() * self._my_size}."
            )
        is_direct = self._is_sorted and output.is_contiguous() and not output.is_neg()
        if is_direct:
            place = as_bytes(output.detach().view(-1))
            return self._run(what, [self._gather_task(flat, "g", place)], [output], opts)

        def write(tasks: Sequence[Task]) -> None:
            rows = tasks[0].result.view(self._my_size, flat.numel() * flat.element_size())
            if not self._is_sorted:
                rows = rows[self._places]
            write_to(output, rows.reshape(-1))

        return self._run(what, [self._gather_task(flat)], [output], opts, write)

    def _allgather(
        self, outputs: Sequence[torch.Tensor], tensor: torch.Tensor, opts: Any
    ) -> HorovodWork:
        if len(outputs) != self._my_size:
            raise ValueError(
                f"all_gather needs {self._my_size} output tensors, one for each rank, not "
                f"{len(outputs)}."
            )
        if any(output.dtype != tensor.dtype for output in outputs):
            raise ValueError(
                "Invalid usage of tensors with different dtypes: all_gather needs one type."
            )
        flat = flatten(tensor)
        if outputs[self._my_rank].numel() != tensor.numel():
            raise ValueError(
                f"all_gather: output {self._my_rank} has {outputs[self._my_rank].numel()} "
                f"elements, but this rank gives {tensor.numel()}."
            )
        sizes = [output.numel() * output.element_size() for output in outputs]
        is_even = len(set(sizes)) == 1
        task = self._gather_task(flat) if is_even else self._gather_uneven(flat, sizes)

        def write(tasks: Sequence[Task]) -> None:
            raw = tasks[0].result
            if is_even:
                parts = raw.split(sizes) if sizes[0] > 0 else [raw] * self._my_size
            else:
                parts = self._read_uneven(tasks[0], sizes)
            for output, place in zip(outputs, self._places, strict=True):
                write_to(output, parts[place])

        return self._run("all_gather", [task], [list(outputs)], opts, write)

    def _gather_uneven(self, flat: torch.Tensor, sizes: Sequence[int]) -> Task:
        """Ranks give different numbers of bytes: each sends what it expects of all in front."""
        raw = torch.cat([as_bytes(torch.tensor(sizes, dtype=torch.int64)), as_bytes(flat)])
        key = ("G", sum(sizes))
        return self._task(
            *(native.ALLGATHER, key, native.SUM, (1.0, 1.0), 0, raw, None),
            finish=take_result(torch.uint8),
        )

    def _read_uneven(self, task: Task, sizes: Sequence[int]) -> list[torch.Tensor]:
        """What each place of the core's set gave; fails on all ranks if one expected otherwise."""
        parts = []
        at, head = 0, 8 * self._my_size
        for rank in sorted(range(self._my_size), key=self._places.__getitem__):
            told = task.result[at : at + head].clone().view(torch.int64).tolist()
            parts.append(task.result[at + head : at + head + told[rank]])
            at += head + told[rank]
            if told != list(sizes):
                self._order.disagreed(task.position)
                raise make_error(
                    f"all_gather: the ranks disagree about the sizes. Rank {rank} of the group "
                    f"expects {told} bytes of the ranks, rank {self._my_rank} {list(sizes)}.",
                    native.ERR_MISMATCH,
                )
        return parts

    def allgather(
        self, output_tensors: Any, input_tensors: Any, opts: Any = None, timeout: Any = None
    ) -> HorovodWork:
        """Every rank gets the tensors of all."""
        if isinstance(input_tensors, torch.Tensor):
            return self._allgather(output_tensors, input_tensors, opts or timeout)
        return self._allgather(
            only_one(output_tensors, "all_gather"), only_one(input_tensors, "all_gather"), opts
        )

    def all_gather_single(
        self, output: torch.Tensor, input: torch.Tensor, opts: Any = None, timeout: Any = None
    ) -> HorovodWork:
        """The tensors of all ranks, one after the other, in one tensor."""
        return self._allgather_into(output, input, opts or timeout)

    _allgather_base = all_gather_single

    def allgather_coalesced(
        self, output_lists: Any, input_list: Sequence[torch.Tensor], opts: Any = None
    ) -> Any:
        """Gather several tensors; `output_lists[rank][i]` is tensor i of a rank."""
        works = (
            self._allgather([row[i] for row in output_lists], tensor, opts)
            for i, tensor in enumerate(input_list)
        )
        return self._many("all_gather_coalesced", works, output_lists, opts)

    def all_gather_single_coalesced(
        self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], opts: Any = None
    ) -> Any:
        """Gather several tensors, each into one."""
        works = (
            self._allgather_into(output, tensor, opts)
            for output, tensor in zip(outputs, inputs, strict=True)
        )
        return self._many("all_gather_into_tensor_coalesced", works, list(outputs), opts)

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    # ---- one rank to or from all ----

    def _received(self, what: str, task: Task, rows: Sequence[int]) -> torch.Tensor:
        """The result of an exchange, if every rank gave as many rows as this one expects."""
        result, counts = task.result
        got = [counts[place] for place in self._places]
        if got != list(rows):
            self._order.disagreed(task.position)
            width = result.shape[-1]
            raise make_error(
                f"{what}: rank {self._my_rank} of the group expects {[n * width for n in rows]} "
                f"bytes of the ranks, but they sent {[n * width for n in got]}: their roots or "
                f"sizes do not fit together.",
                native.ERR_MISMATCH,
            )
        return result

    def _exchange(
        self, key: tuple, parts: Sequence[torch.Tensor], rows: Sequence[int], width: int
    ) -> Task:
        """Give parts[rank], so many rows, to each rank of the group.

        The result holds what all gave, in order. The core compares the width of the rows.
        """
        placed = self._in_order([as_bytes(part) for part in parts])
        splits = self._in_order(rows)
        raw = placed[0] if len(placed) == 1 else torch.cat(placed)
        raw = raw.view(sum(splits), width)
        take = take_result(torch.uint8)
        return self._task(
            *(native.ALLTOALL, key, native.SUM, (1.0, 1.0), 0, raw, None, splits),
            finish=lambda handle: (
                take(handle).view(-1, width) if width > 0 else take(handle),
                native.result_splits(handle, 0, self._my_size),
            ),
        )

    def _check_rooted(
        self, what: str, side: str, root: int, tensors: Sequence[Any], like: torch.Tensor
    ) -> bool:
        """Is this rank the root? Only the root has such tensors, one for each rank."""
        self._set_root(root)
        is_root = root == self._my_rank
        if is_root and len(tensors) != self._my_size:
            raise ValueError(
                f"{what}: the root needs {self._my_size} {side} tensors, one for each rank, not "
                f"{len(tensors)}."
            )
        if not is_root and len(tensors) > 0:
            raise ValueError(f"{what}: only the root, rank {root}, has {side} tensors.")
        if any(t.dtype != like.dtype or t.numel() != like.numel() for t in tensors):
            other = "input" if side == "output" else "output"
            raise ValueError(f"{what}: the {side}s must have the type and size of the {other}.")
        return is_root

    def gather(
        self,
        output_tensors: Any,
        input_tensors: Any,
        opts: Any = None,
        timeout: Any = None,
    ) -> HorovodWork:
        """One rank gets the tensors of all."""
        if isinstance(opts, int):
            root, opts, tensor, outputs = opts, timeout, input_tensors, output_tensors
        else:
            root, tensor = opts.rootRank, only_one(input_tensors, "gather")
            outputs = output_tensors[0] if output_tensors else []
        is_root = self._check_rooted("gather", "output", root, outputs, tensor)
        flat = flatten(tensor)
        none = flat[:0]
        width = flat.numel() * flat.element_size()
        parts = [flat if rank == root else none for rank in range(self._my_size)]
        counts = [int(rank == root) for rank in range(self._my_size)]
        task = self._exchange(("n", root, width), parts, counts, width)

        def write(tasks: Sequence[Task]) -> None:
            rows = self._received("gather", tasks[0], [1] * self._my_size)
            for output, place in zip(outputs, self._places, strict=True):
                write_to(output, rows[place])

        def refuse(tasks: Sequence[Task]) -> None:
            self._received("gather", tasks[0], [0] * self._my_size)

        return self._run("gather", [task], [list(outputs)], opts, write if is_root else refuse)

    def scatter(
        self,
        output_tensors: Any,
        input_tensors: Any,
        opts: Any = None,
        timeout: Any = None,
    ) -> HorovodWork:
        """One rank gives each rank a tensor."""
        if isinstance(opts, int):
            root, opts, output, inputs = opts, timeout, output_tensors, input_tensors
        else:
            root, output = opts.rootRank, only_one(output_tensors, "scatter")
            inputs = input_tensors[0] if input_tensors else []
        is_root = self._check_rooted("scatter", "input", root, inputs, output)
        width = output.numel() * output.element_size()
        none = torch.empty(0, dtype=torch.uint8)
        parts = [flatten(i) for i in inputs] if is_root else [none] * self._my_size
        task = self._exchange(("s", root, width), parts, [int(is_root)] * self._my_size, width)

        def write(tasks: Sequence[Task]) -> None:
            counts = [int(rank == root) for rank in range(self._my_size)]
            write_to(output, self._received("scatter", tasks[0], counts).reshape(-1))

        return self._run("scatter", [task], [output], opts, write)

    # ---- reduce_scatter ----

    def _reduce_scatter(
        self, output: torch.Tensor, parts: Sequence[torch.Tensor], op: Any, opts: Any
    ) -> HorovodWork:
        """`parts[rank]` of all ranks are reduced to that rank's output."""
        what = "reduce_scatter"
        if len(parts) != self._my_size:
            raise ValueError(f"{what} needs {self._my_size} input tensors, not {len(parts)}.")
        if any(part.dtype != output.dtype for part in parts):
            raise ValueError(
                "Invalid usage of tensors with different dtypes: reduce_scatter needs one type."
            )
        if parts[self._my_rank].numel() != output.numel():
            raise ValueError(
                f"{what}: the output has {output.numel()} elements, the part of this rank "
                f"{parts[self._my_rank].numel()}."
            )
        how = Reduction.of(op, output.dtype, self._my_size)
        flats = [flatten(part) for part in parts]
        sizes = [flat.numel() for flat in flats]
        is_even = len(set(sizes)) == 1
        whole = torch.cat(self._in_order(flats))
        if how.core == native.SUM and is_even:
            return self._reduce_scatter_even(output, whole, how, opts)
        start = sum(sizes[r] for r in self._before())
        count = output.numel()
        if how.core is not None:
            wire = how.prepare(whole)
            task = self._reduce_task(wire, how, wire)

            def cut(tasks: Sequence[Task]) -> None:
                mine = wire.view(output.dtype)[start : start + count]
                write_to(output, how.average(mine))

            return self._run(what, [task], [output], opts, cut)
        total = whole.numel()

        def fold(tasks: Sequence[Task]) -> None:
            rows = tasks[0].result.view(whole.dtype).view(self._my_size, total)
            write_to(output, how.fold([row[start : start + count] for row in rows]))

        return self._run(what, [self._gather_task(whole, "F")], [output], opts, fold)

    def _before(self) -> list[int]:
        """The ranks of the group that have places before this rank's in the core's set."""
        mine = self._places[self._my_rank]
        return [rank for rank, place in enumerate(self._places) if place < mine]

    def _reduce_scatter_even(
        self, output: torch.Tensor, whole: torch.Tensor, how: Reduction, opts: Any
    ) -> HorovodWork:
        wire = how.prepare(whole)
        key = ("c", wire.dtype, wire.numel())
        is_direct = output.is_contiguous() and not output.is_complex() and not output.is_neg()
        place = output.detach().view(-1) if is_direct else None
        task = self._task(
            *(native.REDUCESCATTER, key, native.SUM, (1.0, 1.0), 0, wire, place),
            finish=None if is_direct else take_result(wire.dtype),
        )

        def write(tasks: Sequence[Task]) -> None:
            total = place if place is not None else tasks[0].result
            write_to(output, how.average(total).view(output.dtype))

        return self._run("reduce_scatter", [task], [output], opts, write)

    def reduce_scatter(
        self, output_tensors: Any, input_tensors: Any, opts: Any = None, timeout: Any = None
    ) -> HorovodWork:
        """Reduce a list of tensors; each rank gets one of the results."""
        op, opts = self._read_op(opts, timeout)
        if isinstance(output_tensors, torch.Tensor):
            return self._reduce_scatter(output_tensors, input_tensors, op, opts)
        output = only_one(output_tensors, "reduce_scatter")
        return self._reduce_scatter(output, only_one(input_tensors, "reduce_scatter"), op, opts)

    def reduce_scatter_single(
        self, output: torch.Tensor, tensor: torch.Tensor, opts: Any = None, timeout: Any = None
    ) -> HorovodWork:
        """Reduce a tensor; each rank gets its part of the result."""
        op, opts = self._read_op(opts, timeout)
        if output.dtype != tensor.dtype:
            raise ValueError(
                f"reduce_scatter: the output is {output.dtype}, the input {tensor.dtype}."
            )
        if tensor.numel() != output.numel() * self._my_size:
            raise ValueError(
                f"input tensor must be the same size as output size times world size: it has "
                f"{tensor.numel()} elements, {self._my_size} times {output.numel()} are needed."
            )
        flat = flatten(tensor)
        if not self._is_sorted or flat.numel() == 0:
            return self._reduce_scatter(output, flat.chunk(self._my_size), op, opts)
        how = Reduction.of(op, output.dtype, self._my_size)
        if how.core == native.SUM:
            return self._reduce_scatter_even(output, flat, how, opts)
        return self._reduce_scatter(output, flat.chunk(self._my_size), op, opts)

    _reduce_scatter_base = reduce_scatter_single

    def reduce_scatter_single_coalesced(
        self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], opts: Any = None
    ) -> Any:
        """reduce_scatter of several tensors."""
        works = (
            self._reduce_scatter_base(output, tensor, opts)
            for output, tensor in zip(outputs, inputs, strict=True)
        )
        return self._many("reduce_scatter_tensor_coalesced", works, list(outputs), opts)

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    # ---- alltoall ----

    def all_to_all_single(
        self,
        output: torch.Tensor,
        input: torch.Tensor,
        output_split_sizes: Sequence[int] = (),
        input_split_sizes: Sequence[int] = (),
        opts: Any = None,
        timeout: Any = None,
    ) -> HorovodWork:
        """Rows of a tensor to each rank; the output holds what all ranks gave."""
        if output.dtype != input.dtype:
            raise ValueError(f"all_to_all: the output is {output.dtype}, the input {input.dtype}.")
        sent = self._split(input, input_split_sizes, "input")
        got = self._split(output, output_split_sizes, "output")
        return self._alltoall(got, sent, output, output.dtype, opts or timeout, [output])

    alltoall_base = all_to_all_single

    def _split(
        self, tensor: torch.Tensor, sizes: Sequence[int], which: str
    ) -> Sequence[torch.Tensor]:
        rows = tensor.shape[0] if tensor.dim() > 0 else 1
        if not sizes:
            if rows % self._my_size != 0:
                raise ValueError(
                    f"Tensor's dim 0 does not divide equally across group size: the {which} of "
                    f"all_to_all has {rows} rows for {self._my_size} ranks."
                )
            sizes = [rows // self._my_size] * self._my_size
        if len(sizes) != self._my_size:
            raise ValueError(
                f"Number of tensor splits not equal to group size: the {which} of all_to_all has "
                f"{len(sizes)} splits for {self._my_size} ranks."
            )
        if sum(sizes) != rows:
            raise ValueError(
                f"Split sizes doesn't match total dim 0 size: the {which} of all_to_all has {rows} "
                f"rows, its splits {sum(sizes)}."
            )
        return tensor.detach().split(list(sizes))

    def alltoall(
        self,
        output_tensors: Sequence[torch.Tensor],
        input_tensors: Sequence[torch.Tensor],
        opts: Any = None,
        timeout: Any = None,
    ) -> HorovodWork:
        """A tensor to each rank, and one from each."""
        if len(output_tensors) != self._my_size or len(input_tensors) != self._my_size:
            raise ValueError(
                f"all_to_all needs {self._my_size} tensors, one for each rank, not "
                f"{len(output_tensors)} outputs and {len(input_tensors)} inputs."
            )
        if len({t.dtype for t in (*output_tensors, *input_tensors)}) != 1:
            raise ValueError("all_to_all: all tensors must have one type.")
        outputs = list(output_tensors)
        dtype = outputs[0].dtype
        return self._alltoall(outputs, input_tensors, None, dtype, opts or timeout, outputs)

    def _alltoall(
        self,
        got: Sequence[torch.Tensor],
        sent: Sequence[torch.Tensor],
        whole: torch.Tensor | None,
        dtype: torch.dtype,
        opts: Any,
        outputs: Any,
    ) -> HorovodWork:
        """`whole`: the tensor that the parts of `got` make up, if there is one."""
        width = dtype.itemsize
        sizes = [part.numel() * width for part in got]
        flats = [flatten(part) for part in sent]
        task = self._exchange(("a", width), flats, [flat.numel() for flat in flats], width)

        def write(tasks: Sequence[Task]) -> None:
            raw = self._received("all_to_all", tasks[0], [part.numel() for part in got])
            raw = raw.reshape(-1)
            if whole is not None and self._is_sorted:
                write_to(whole, raw)
                return
            parts = raw.split(self._in_order(sizes))
            for part, place in zip(got, self._places, strict=True):
                write_to(part, parts[place])

        return self._run("all_to_all", [task], outputs, opts, write)
