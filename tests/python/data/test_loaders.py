# SPDX-License-Identifier: Apache-2.0
"""horovod.data: the order of batches, errors where they belong, and no thread left."""

import threading

import pytest
from horovod.data import AsyncDataLoaderMixin, BaseDataLoader


class Numbers(BaseDataLoader):
    def __init__(self, count, fails_at=None):
        self.count, self.fails_at = count, fails_at

    def __len__(self):
        return self.count

    def _iterate(self):
        for i in range(self.count):
            if i == self.fails_at:
                raise OSError(f"batch {i} is unreadable")
            yield i

    def _process_batch(self, batch):
        return batch * 10


class AsyncNumbers(AsyncDataLoaderMixin, Numbers):
    pass


def loader_threads():
    return [t for t in threading.enumerate() if t.name == "horovod-loader"]


@pytest.mark.parametrize("size", [0, 1, 64])
def test_all_batches_in_order_each_epoch(size):
    loader = AsyncNumbers(size, 5)
    assert len(loader) == 5
    assert list(loader) == list(loader) == [0, 10, 20, 30, 40]
    assert not loader_threads()


@pytest.mark.parametrize("size", [0, 2])
def test_an_error_comes_in_its_place(size):
    seen = []
    with pytest.raises(OSError, match="batch 3"):
        for batch in AsyncNumbers(size, 5, fails_at=3):
            seen.append(batch)
    assert seen == [0, 10, 20]
    assert not loader_threads()


def test_a_loop_left_early_ends_the_thread():
    loader = AsyncNumbers(2, 1000)
    for batch in loader:
        if batch == 30:
            break
    loader.close_async_loader()
    assert not loader_threads()


def test_bad_size():
    with pytest.raises(ValueError, match="below 0"):
        AsyncNumbers(-1, 1)
