# SPDX-License-Identifier: Apache-2.0
"""Messages from one rank of a group to another, and the barriers.

Start reading at `Messages.send`.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch

from horovod.common.library import native
from horovod.torch.distributed.base import GroupBase
from horovod.torch.distributed.tensors import (
    as_bytes,
    flatten,
    is_same,
    only_one,
    to_native,
    write_to,
)
from horovod.torch.distributed.work import HorovodWork, Task, make_error

_BARRIER_TAG = 1 << 62


class Messages(GroupBase):
    """Messages and barriers of a group."""

    # ---- from one rank to another ----

    def _message(
        self, is_send: bool, peer: int, tag: int, raw: torch.Tensor, finish: Any = None
    ) -> Task:
        function = native.send if is_send else native.recv
        source = to_native(raw)

        def submit(flags: int) -> int:
            return function(peer, self._channel, tag, source, flags)

        return Task(submit, finish, raw)

    def _peer(self, rank: int, what: str) -> int:
        if rank == self._my_rank:
            raise ValueError(f"{what}: rank {rank} is this rank itself.")
        return self._set_root(rank)

    @staticmethod
    def _check_tag(tag: int) -> int:
        if tag < 0:
            raise ValueError(f"The tag of a message is {tag}; it must not be negative.")
        return tag

    def send(self, tensors: Any, dst_rank: int, tag: int = 0) -> HorovodWork:
        """Send a tensor to one rank. Ends when the receiver has taken it."""
        tensor = only_one(tensors, "send")
        peer = self._peer(dst_rank, "send")
        task = self._message(True, peer, self._check_tag(tag), as_bytes(flatten(tensor)))
        return self._run(f"send to rank {dst_rank} with tag {tag}", [task], [tensor], None)

    def _recv(self, tensors: Any, peer: int, tag: int, what: str) -> HorovodWork:
        tensor = only_one(tensors, "recv")
        raw = as_bytes(flatten(tensor))
        is_copy = not is_same(raw, tensor)

        def source(handle: int) -> int:
            return self._group_ranks[native.result_rank(handle)]

        def write(tasks: Sequence[Task]) -> None:
            write_to(tensor, raw)

        task = self._message(False, peer, self._check_tag(tag), raw, source)
        return self._run(what, [task], [tensor], None, write if is_copy else None)

    def recv(self, tensors: Any, src_rank: int, tag: int = 0) -> HorovodWork:
        """Receive a tensor from one rank."""
        peer = self._peer(src_rank, "recv")
        return self._recv(tensors, peer, tag, f"recv from rank {src_rank} with tag {tag}")

    def recv_anysource(self, tensors: Any, tag: int = 0) -> HorovodWork:
        """Receive a tensor from whichever rank sends first."""
        return self._recv(tensors, -1, tag, f"recv from any rank with tag {tag}")

    # ---- barriers ----

    def barrier(self, opts: Any = None, timeout: Any = None) -> HorovodWork:
        """Ends when all ranks have called it."""
        token = torch.zeros(1, dtype=torch.uint8)
        task = self._task(native.ALLREDUCE, ("barrier",), native.MAX, (1.0, 1.0), 0, token, token)
        return self._run("barrier", [task], [token], opts or timeout)

    def monitored_barrier(
        self, timeout: timedelta | None = None, wait_all_ranks: bool = False
    ) -> None:
        """A barrier that names the ranks that did not come; blocks."""
        if timeout is not None and timeout <= timedelta(0) and self._my_rank == 0:
            raise make_error("Rank 0 timed out in monitoredBarrier after 0 ms.", native.ERR_TIMEOUT)
        limit = self._limit(timeout)
        self._barriers += 1
        tag = _BARRIER_TAG + self._barriers
        token = torch.zeros(1, dtype=torch.uint8)
        limit_ms = int(limit.total_seconds() * 1000)
        if self._my_rank != 0:
            self._reach_rank_0(tag, token, limit, limit_ms)
            return
        works = {}
        for rank in range(1, self._my_size):
            task = self._message(False, self._ranks[rank], tag, torch.zeros_like(token))
            works[rank] = HorovodWork(f"recv from rank {rank}", [task], [], limit).start(False)
        missing = []
        for rank, work in works.items():
            try:
                work.wait()
            except Exception as error:
                if not wait_all_ranks:
                    raise make_error(
                        f"[Rank 0]: Rank {rank} failed to pass monitoredBarrier in {limit_ms} ms. "
                        f"{error}",
                        native.ERR_TIMEOUT,
                    ) from None
                missing.append(rank)
        if missing:
            text = ", ".join(map(str, missing))
            raise make_error(
                f"[Rank 0]: Ranks {text} failed to pass monitoredBarrier in {limit_ms} ms",
                native.ERR_TIMEOUT,
            )
        for rank in range(1, self._my_size):
            task = self._message(True, self._ranks[rank], tag, token)
            HorovodWork(f"send to rank {rank}", [task], [], limit).start(False).wait()

    def _reach_rank_0(self, tag: int, token: torch.Tensor, limit: timedelta, limit_ms: int) -> None:
        answer = torch.zeros_like(token)
        try:
            for is_send, raw in ((True, token), (False, answer)):
                task = self._message(is_send, self._ranks[0], tag, raw)
                HorovodWork("monitored_barrier", [task], [], limit).start(False).wait()
        except Exception as error:
            raise make_error(
                f"Rank {self._my_rank} successfully reached monitoredBarrier, but received errors "
                f"while waiting for send/recv from rank 0. Please check rank 0 logs for faulty "
                f"rank. Original exception: {error}",
                native.ERR_TIMEOUT,
            ) from None
