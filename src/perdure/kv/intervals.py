"""A set of keys made of half-open intervals, kept disjoint, sorted and merged.

Used for the ranges a transaction has cleared and for the ranges recent commits have written. All
questions are one bisect; adding is one bisect plus the cost of closing the gap in two lists.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

__all__ = ["Intervals"]


class Intervals:
    """Invariant: `begins[i] < ends[i] < begins[i + 1]`."""

    __slots__ = ("begins", "ends")

    def __init__(self, intervals: Iterable[tuple[bytes, bytes]] = ()) -> None:
        self.begins: list[bytes] = []
        self.ends: list[bytes] = []
        for begin, end in intervals:
            self.add(begin, end)

    def add(self, begin: bytes, end: bytes) -> None:
        """Add [begin, end); an empty interval adds nothing."""
        if begin >= end:
            return
        first = bisect_left(self.ends, begin)
        last = bisect_right(self.begins, end)
        if first < last:
            begin = min(begin, self.begins[first])
            end = max(end, self.ends[last - 1])
        self.begins[first:last] = [begin]
        self.ends[first:last] = [end]

    def covers(self, key: bytes) -> bool:
        """Whether the key is in the set."""
        position = bisect_right(self.ends, key)
        return position < len(self.begins) and self.begins[position] <= key

    def overlaps(self, begin: bytes, end: bytes) -> bool:
        """Whether a part of [begin, end) is in the set."""
        position = bisect_right(self.ends, begin)
        return position < len(self.begins) and self.begins[position] < end

    def gaps(self, begin: bytes, end: bytes) -> list[tuple[bytes, bytes]]:
        """The parts of [begin, end) that are not in the set, in order."""
        gaps = []
        position = bisect_right(self.ends, begin)
        while position < len(self.begins) and self.begins[position] < end:
            if begin < self.begins[position]:
                gaps.append((begin, self.begins[position]))
            begin = self.ends[position]
            position += 1
        if begin < end:
            gaps.append((begin, end))
        return gaps

    def __iter__(self) -> Iterator[tuple[bytes, bytes]]:
        return zip(self.begins, self.ends, strict=True)

    def __len__(self) -> int:
        return len(self.begins)
