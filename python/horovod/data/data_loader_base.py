# SPDX-License-Identifier: Apache-2.0
"""BaseDataLoader, and AsyncDataLoaderMixin, which reads batches ahead in a thread."""

import queue
import threading
from collections.abc import Iterator
from typing import Any

_LOOK_S = 0.1  # how often a thread that can't go on sees whether it is to end


class BaseDataLoader:
    """Subclasses define `__len__` and `_iterate()`, and perhaps `_process_batch()`."""

    def __len__(self) -> int:
        """The number of batches of an epoch."""
        raise NotImplementedError

    def _iterate(self) -> Iterator:
        """The batches of an epoch."""
        raise NotImplementedError

    def __iter__(self) -> Iterator:
        """The batches of an epoch, processed."""
        for batch in self._iterate():
            yield self._process_batch(batch)

    def _process_batch(self, batch: Any) -> Any:
        """What is done to a batch before it is given out, in the thread that consumes it."""
        return batch


class _End:
    """The epoch is over; error: why, if not because all batches were read."""

    def __init__(self, error=None):
        self.error = error


class AsyncDataLoaderMixin:
    """Reads up to async_loader_queue_size batches ahead in a thread; 0: in the caller's thread.

        class AsyncLoader(AsyncDataLoaderMixin, Loader): ...

    An exception of `_iterate()` is raised where the batch would have been. A loop that is left
    early, and close_async_loader(), end the thread.
    """

    def __init__(self, async_loader_queue_size: int = 64, *args: Any, **kwargs: Any) -> None:
        if async_loader_queue_size < 0:
            raise ValueError(f"async_loader_queue_size is {async_loader_queue_size}, below 0")
        self.async_loader_queue_size = async_loader_queue_size
        self.finished_event = threading.Event()
        self._async_thread: threading.Thread | None = None
        super().__init__(*args, **kwargs)

    def close_async_loader(self) -> None:
        """End the thread, if there is one."""
        self.finished_event.set()
        if self._async_thread is not None:
            self._async_thread.join()
            self._async_thread = None

    def _put(self, batches, item):
        while not self.finished_event.is_set():
            try:
                batches.put(item, timeout=_LOOK_S)
                return True
            except queue.Full:
                continue
        return False

    def _async_worker(self, batches):
        try:
            for batch in self._iterate():
                if not self._put(batches, batch):
                    return
            self._put(batches, _End())
        except BaseException as error:
            self._put(batches, _End(error))

    def __iter__(self) -> Iterator:
        """The batches of an epoch, processed."""
        if self.async_loader_queue_size == 0:
            yield from super().__iter__()  # type: ignore[misc]
            return
        self.close_async_loader()
        self.finished_event.clear()
        batches: queue.Queue = queue.Queue(self.async_loader_queue_size)
        self._async_thread = threading.Thread(
            target=self._async_worker, args=(batches,), daemon=True, name="horovod-loader"
        )
        self._async_thread.start()
        try:
            while not isinstance(item := batches.get(), _End):
                yield self._process_batch(item)  # type: ignore[attr-defined]
            if item.error is not None:
                raise item.error
        finally:
            self.close_async_loader()
