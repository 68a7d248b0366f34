# SPDX-License-Identifier: Apache-2.0
"""A pipe of text between two threads."""

import queue


class Pipe:
    """What one writes another reads; read() returns None after close(). A full pipe blocks."""

    def __init__(self, maxsize=1024):
        self._queue = queue.Queue(maxsize)
        self._rest = None
        self._is_closed = False

    def write(self, buf):
        if self._is_closed:
            raise RuntimeError("the pipe is closed")
        if buf:
            self._queue.put(buf)

    def read(self, length=-1):
        if self._rest is None:
            if self._is_closed and self._queue.empty():
                return None
            self._rest = self._queue.get()
            if self._rest is None:
                self._queue.put(None)  # for other readers
                self._rest = None
                return None
        whole, self._rest = self._rest, None
        if 0 <= length < len(whole):
            whole, self._rest = whole[:length], whole[length:]
        return whole

    def flush(self):
        """Nothing is held back."""

    def close(self):
        if not self._is_closed:
            self._is_closed = True
            self._queue.put(None)
