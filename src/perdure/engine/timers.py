"""Which names to look at when: the deadlines of sleeping workflows, kept in memory by time only.

A sleeping workflow has no timer object. The wheel holds (time, name) pairs, each at most once, fed
from the deadline index a little ahead of time and by runs that go to sleep here. When a time comes,
the name is looked at in the store, which knows what is due. So a missing or superfluous entry costs
a late or an empty look, never a wrong one. How far ahead it is fed has nothing to do with how long
workflows stay in memory.
"""

from __future__ import annotations

import heapq

__all__ = ["TimerWheel"]


class TimerWheel:
    """Times in epoch ms, pure."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, str]] = []
        self._known: set[tuple[int, str]] = set()

    def add(self, at: int, name: str) -> None:
        """Remember to look at `name` at time `at`."""
        entry = (at, name)
        if entry not in self._known:
            self._known.add(entry)
            heapq.heappush(self._heap, entry)

    def next(self) -> int | None:
        """Return the earliest time, if there is one."""
        return self._heap[0][0] if self._heap else None

    def take_due(self, now: int) -> set[str]:
        """Remove everything up to `now` and return the names."""
        names: set[str] = set()
        while self._heap and self._heap[0][0] <= now:
            entry = heapq.heappop(self._heap)
            self._known.discard(entry)
            names.add(entry[1])
        return names

    def __len__(self) -> int:
        return len(self._heap)
