"""Times at which something is due, without a clock.

The owner sets and clears deadlines by key and says what time it is; whoever has a clock asks
`next` when to come back. Times are seconds of a monotonic clock.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from itertools import count
from typing import Final, Generic, TypeVar

__all__ = ["Deadlines"]

Key = TypeVar("Key")

_SLACK: Final = 64
"""Replaced deadlines that may stay in the heap before it is built anew."""


class Deadlines(Generic[Key]):
    """One deadline per key. Setting one again replaces it."""

    __slots__ = ("_current", "_heap", "_order")

    def __init__(self) -> None:
        self._current: dict[Key, tuple[float, int]] = {}
        self._heap: list[tuple[float, int, Key]] = []
        self._order = count()

    def __contains__(self, key: Key) -> bool:
        return key in self._current

    def set(self, key: Key, at: float) -> None:
        order = next(self._order)
        self._current[key] = (at, order)
        heapq.heappush(self._heap, (at, order, key))
        if len(self._heap) > 2 * len(self._current) + _SLACK:
            self._heap = [(at, order, key) for key, (at, order) in self._current.items()]
            heapq.heapify(self._heap)

    def clear(self, key: Key) -> None:
        """Forget it, if it was set."""
        self._current.pop(key, None)

    def next(self) -> float | None:
        """The earliest deadline; None when nothing is set."""
        self._drop_stale()
        return self._heap[0][0] if self._heap else None

    def due(self, now: float) -> Iterator[Key]:
        """Keys whose time has come, in order of their time. They are cleared as they are taken."""
        while True:
            self._drop_stale()
            if not self._heap or self._heap[0][0] > now:
                return
            key = heapq.heappop(self._heap)[2]
            del self._current[key]
            yield key

    def _drop_stale(self) -> None:
        heap, current = self._heap, self._current
        while heap and current.get(heap[0][2]) != heap[0][:2]:
            heapq.heappop(heap)
