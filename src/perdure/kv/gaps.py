"""Where range reads have to step over many deleted keys, and how to get past them only once.

A deleted key stays in RocksDB as a tombstone until compaction removes it. A queue that is consumed
at its front leaves a field of tombstones there, and every read from the start of the queue crosses
it again: ten milliseconds for 100,000 of them. So when finding the first row of a range was slow,
remember how far it was empty, and at which version. A later read starts there, or at the smallest
key that was written in the gap since; `RecentWrites` knows it. If it no longer knows, the read
starts at the beginning again.

Only a matter of speed: what is read is the same with and without.
"""

from __future__ import annotations

from time import perf_counter
from typing import Final

from rocksdict import RdictIter

from perdure.kv.conflicts import RecentWrites

__all__ = ["Gaps"]

_SLOW: Final = 0.001
_REMEMBERED: Final = 256


class Gaps:
    """`_known[begin] = (version, key)`: at that version nothing was in [begin, key)."""

    __slots__ = ("_known", "_recent")

    def __init__(self, recent: RecentWrites) -> None:
        self._recent = recent
        self._known: dict[bytes, tuple[int, bytes]] = {}

    def seek(self, rows: RdictIter, begin: bytes, version: int) -> None:
        """Move `rows`, an iterator on the state at `version`, to the first row from `begin` on."""
        known = self._known.get(begin)
        if known is None:
            started = perf_counter()
            rows.seek(begin)
            if perf_counter() - started < _SLOW:
                return
        elif known[0] > version:
            rows.seek(begin)
            return
        else:
            rows.seek(self._entrance(begin, *known))
            # Back in, as the youngest: the oldest is the first to be forgotten.
            del self._known[begin]
        if rows.valid():
            self._known[begin] = (version, rows.key())
            if len(self._known) > _REMEMBERED:
                del self._known[next(iter(self._known))]

    def _entrance(self, begin: bytes, version: int, empty_until: bytes) -> bytes:
        if not self._recent.covers(version):
            return begin
        written = self._recent.first_written(begin, empty_until, version)
        return empty_until if written is None else written
