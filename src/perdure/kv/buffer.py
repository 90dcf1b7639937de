"""The writes a transaction has not committed yet, and how its own reads see them.

Kept in a normal form instead of a log of calls: cleared ranges first, then one final state for each
key on top of them. Later calls are folded in at once (a set replaces an add, an add on a known
value becomes a set, a clear of a range drops what was set inside it), so a commit carries each key
once and reading your own writes is a dictionary lookup.

Range reads take a `Window`: a copy of the local state of that range at the time of the call. The
window says which parts must be read from the snapshot and merges them with the local writes. It is
plain logic without I/O.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass

from perdure.kv.driver import Stamped, added
from perdure.kv.intervals import Intervals

__all__ = ["Window", "WriteBuffer"]

Row = tuple[bytes, bytes]


@dataclass(slots=True)
class Window:
    """The local writes inside one range, in key order, and the ranges they leave to the store."""

    gaps: list[tuple[bytes, bytes]]
    writes: list[tuple[bytes, bytes | None]]
    adds: list[tuple[bytes, int]]

    def fetch_limit(self, limit: int) -> int:
        """How many stored rows are enough for `limit` merged ones (0: all).

        Each local write hides at most one stored row.
        """
        return limit + len(self.writes) + len(self.adds) if limit else 0

    def merge(self, fetched: list[Row], cut_off: bool, limit: int, reverse: bool) -> list[Row]:
        """The rows the transaction sees, from the stored rows of the gaps in reading order.

        `cut_off` says that more stored rows may follow the last fetched one. Local writes beyond
        that row must wait then, as they could overtake stored rows nobody has looked at.
        """
        rows: dict[bytes, bytes] = dict(fetched)
        horizon = fetched[-1][0] if cut_off else None
        for key, value in self.writes:
            if horizon is not None and (key < horizon if reverse else key > horizon):
                continue
            if value is None:
                rows.pop(key, None)
            else:
                rows[key] = value
        for key, delta in self.adds:
            if horizon is None or not (key < horizon if reverse else key > horizon):
                rows[key] = added(rows.get(key), delta)
        merged = sorted(rows.items(), reverse=reverse)
        return merged[:limit] if limit else merged


class WriteBuffer:
    """Invariants: `writes` and `adds` have no key in common; an entry is newer than every cleared
    range around it; no key of `adds` is inside a cleared range (its value would be known)."""

    __slots__ = ("_sorted", "adds", "clears", "stamped", "writes")

    def __init__(self) -> None:
        self.writes: dict[bytes, bytes | None] = {}
        self.adds: dict[bytes, int] = {}
        self.clears: Intervals | None = None
        self.stamped: list[Stamped] = []
        # All keys of `writes` and `adds` in order; only once a range has been asked for.
        self._sorted: list[bytes] | None = None

    def __bool__(self) -> bool:
        return bool(self.writes or self.adds or self.clears is not None or self.stamped)

    def put(self, key: bytes, value: bytes | None) -> None:
        """Set one key, or clear it if `value` is None."""
        if self._sorted is not None:
            self._note(key)
        if self.adds:
            self.adds.pop(key, None)
        self.writes[key] = value

    def add(self, key: bytes, delta: int) -> None:
        """Add to the integer at one key; to a known value at once, otherwise at the commit."""
        if key in self.writes:
            self.writes[key] = added(self.writes[key], delta)
        elif self.clears is not None and self.clears.covers(key):
            self.put(key, added(None, delta))
        else:
            if self._sorted is not None:
                self._note(key)
            self.adds[key] = self.adds.get(key, 0) + delta

    def clear_range(self, begin: bytes, end: bytes) -> None:
        """Clear [begin, end), and drop what was written inside it."""
        for key in self._keys_in(begin, end):
            self.writes.pop(key, None)
            self.adds.pop(key, None)
        if self._sorted:
            del self._sorted[bisect_left(self._sorted, begin) : bisect_left(self._sorted, end)]
        if self.clears is None:
            self.clears = Intervals()
        self.clears.add(begin, end)

    def cleared(self, key: bytes) -> bool:
        """Whether a cleared range covers the key (a later write may be on top of it)."""
        return self.clears is not None and self.clears.covers(key)

    def window(self, begin: bytes, end: bytes) -> Window | None:
        """The local state of [begin, end), or None if there is none."""
        keys = self._keys_in(begin, end)
        covered = self.clears is not None and self.clears.overlaps(begin, end)
        if not keys and not covered:
            return None
        gaps = self.clears.gaps(begin, end) if self.clears is not None else [(begin, end)]
        return Window(
            gaps,
            [(key, self.writes[key]) for key in keys if key in self.writes],
            [(key, self.adds[key]) for key in keys if key in self.adds],
        )

    def _keys_in(self, begin: bytes, end: bytes) -> list[bytes]:
        if self._sorted is None:
            if not self.writes and not self.adds:
                return []
            self._sorted = sorted([*self.writes, *self.adds])
        keys = self._sorted
        return keys[bisect_left(keys, begin) : bisect_left(keys, end)]

    def _note(self, key: bytes) -> None:
        if key not in self.writes and key not in self.adds:
            assert self._sorted is not None
            insort(self._sorted, key)
