# SPDX-License-Identifier: Apache-2.0
"""The names of a group's collectives: by their position, not by what they are.

All ranks of a group call its collectives in the same order. So the n-th collective of a group has
the same name on every rank, whatever its kind, type and size. The core compares those: ranks that
disagree get an error at once that names them and their sizes; they do not wait for each other.

Names must come back, with the same tensors behind them: then the core recognises them and need not
negotiate. So the position counts modulo a period. Training repeats itself: the period is a multiple
of the number of collectives in a step, which every rank finds in its own history. The histories of
ranks that agree are equal, so all of them change the period at the same position. A wrong period
costs time, never a wrong result: a name with another tensor behind it is negotiated anew.

After a disagreement at position n the histories differ there. Every rank receives the error, and
from then on considers only what comes after n.

Start reading at `Order.take`.
"""

import threading
from typing import Any

SLOTS = 8  # collectives of a group that can be in flight at least
_PERIOD_MAX = 2048
_MATCHES = 16  # at least so many collectives repeat before a period counts
_LIKELY = 4  # so many in a row were seen before: a period may have begun
_TRIES = 64  # places in the history that are looked at
_PATIENCE_MAX = 256  # collectives between two searches that find nothing


class Order:
    """Positions and names of a group's collectives."""

    __slots__ = (
        "_candidate",
        "_keys",
        "_labels",
        "_lock",
        "_matches",
        "_patience",
        "_period",
        "_prefix",
        "_rest",
        "count",
    )

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._lock = threading.Lock()
        self.count = 0  # collectives so far
        self._set_period(SLOTS)
        self._forget()

    def _set_period(self, period: int) -> None:
        self._period = period
        self._labels = [f"{self._prefix}.{period}.{i}" for i in range(period)]

    def _forget(self) -> None:
        self._keys: list[Any] = []
        self._candidate = 0  # the last `_matches` keys are equal to those so many places before
        self._matches = 0
        self._patience = 1
        self._rest = 0  # collectives until the next search

    def take(self, key: Any) -> tuple[int, str]:
        """Position and name of the next collective; `key`: what tells it from others."""
        with self._lock:
            position = self.count
            self.count += 1
            name = self._labels[position % self._period]
            self._learn(key)
        return position, name

    def _learn(self, key: Any) -> None:
        keys = self._keys
        keys.append(key)
        if len(keys) > 4 * _PERIOD_MAX:
            del keys[: 2 * _PERIOD_MAX]
        if self._candidate and keys[-1 - self._candidate] == key:
            self._matches += 1
            if self._matches == max(2 * self._candidate, _MATCHES):
                self._adopt(self._candidate)
            return
        self._candidate = 0
        if self._rest > 0:
            self._rest -= 1
        else:
            self._search()

    def _search(self) -> None:
        """Find the place in the history that the last keys repeat, the longest run of them."""
        keys = self._keys
        last = len(keys) - 1
        best, longest, tries = 0, _LIKELY - 1, 0
        for place in range(last - 1, max(last - _PERIOD_MAX, -1), -1):
            if keys[place] != keys[last]:
                continue
            tries += 1
            length = self._match(place, last)
            if length > longest:
                best, longest = last - place, length
            if tries == _TRIES:
                break
        self._candidate, self._matches = best, longest
        if best:
            self._patience = 1
            if longest >= max(2 * best, _MATCHES):
                self._adopt(best)
        else:
            self._rest = self._patience - 1
            self._patience = min(2 * self._patience, _PATIENCE_MAX)

    def _match(self, place: int, last: int) -> int:
        keys = self._keys
        length = 0
        while length <= place and keys[place - length] == keys[last - length]:
            length += 1
            if length == 2 * _PERIOD_MAX:
                break
        return length

    def _adopt(self, step: int) -> None:
        if self._period % step != 0:
            self._set_period(step * -(-SLOTS // step))

    def disagreed(self, position: int) -> None:
        """The collective at a position failed because the ranks differ there."""
        with self._lock:
            after = self.count - position - 1
            keys = self._keys[-after:] if after > 0 else []
            self._forget()
            for key in keys:
                self._learn(key)
