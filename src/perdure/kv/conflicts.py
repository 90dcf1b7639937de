"""Which keys were written lately, and whether a transaction has read any of them.

Optimistic transactions need one question answered fast: was anything this transaction read written
by a commit newer than its snapshot? The cost must not depend on how many transactions committed in
the last seconds, only on what was read.

* Point reads: a dictionary from key to the version of its last write. O(1).
* Range reads: every commit is a run of keys. Aligned groups of 1, 2, 4, 8, ... runs form blocks,
  each one sorted list. All commits newer than a version are a suffix of the runs, and a suffix is
  O(log n) whole blocks, each answered by a bisect. Blocks are built when first asked for and then
  kept, so stores that see only point reads never sort anything, and the large blocks are only built
  for transactions that have been open for long.
* Ranges written (range clears) are runs of intervals in the same structure.

Writes are kept for `WINDOW` seconds, longer than a transaction may live. A transaction whose
snapshot is older than what is kept is refused as too old, never guessed about.

Owned by one event loop; no locks.
"""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Final, Generic, TypeVar

from perdure.kv.driver import CommitRequest, Refusal, stamped_rows
from perdure.kv.intervals import Intervals
from perdure.kv.limits import TRANSACTION_SECONDS

__all__ = ["WINDOW", "RecentWrites"]

WINDOW: Final = TRANSACTION_SECONDS + 2.0
_TRIM_AT_LEAST: Final = 512
_TRIM_AT_MOST: Final = 4096

Leaf = TypeVar("Leaf")
Block = TypeVar("Block")


class _Runs(Generic[Leaf, Block]):
    """Runs of writes in the order of their versions, numbered from 0 for ever.

    `_blocks[level][number]` covers the runs [number << level, (number + 1) << level).
    """

    __slots__ = ("_base", "_blocks", "_leaves", "_versions")

    def __init__(self) -> None:
        self._base = 0
        self._versions: list[int] = []
        self._leaves: list[Leaf] = []
        self._blocks: dict[tuple[int, int], Block] = {}

    @abstractmethod
    def _build(self, leaves: Sequence[Leaf]) -> Block: ...

    @abstractmethod
    def _join(self, older: Block, newer: Block) -> Block: ...

    @abstractmethod
    def _hit(self, block: Block, begin: bytes, end: bytes) -> bool: ...

    @property
    def newest(self) -> int:
        return self._versions[-1] if self._versions else -1

    def append(self, version: int, leaf: Leaf) -> None:
        self._versions.append(version)
        self._leaves.append(leaf)

    def hits(self, after: int, begin: bytes, end: bytes) -> bool:
        """Whether a run with a version above `after` has something in [begin, end)."""
        if self.newest <= after:
            return False
        return any(self._hit(block, begin, end) for block in self._newer(after))

    def _newer(self, after: int) -> Iterator[Block]:
        """Blocks that together hold exactly the runs with versions above `after`."""
        position = self._base + bisect_right(self._versions, after)
        stop = self._base + len(self._versions)
        while position < stop:
            level = (stop - position).bit_length() - 1
            if position:
                level = min(level, (position & -position).bit_length() - 1)
            yield self._block(level, position >> level)
            position += 1 << level

    def _block(self, level: int, number: int) -> Block:
        block = self._blocks.get((level, number))
        if block is None:
            older = self._blocks.get((level - 1, 2 * number))
            newer = self._blocks.get((level - 1, 2 * number + 1))
            if older is not None and newer is not None:
                block = self._join(older, newer)
            else:
                first = (number << level) - self._base
                block = self._build(self._leaves[first : first + (1 << level)])
            self._blocks[level, number] = block
        return block

    def drop_through(self, version: int) -> list[tuple[int, Leaf]]:
        """Forget runs up to `version` and return them: in steps, so that no commit pays for all."""
        count = min(bisect_right(self._versions, version), _TRIM_AT_MOST)
        if count < _TRIM_AT_LEAST:
            return []
        dropped = list(zip(self._versions[:count], self._leaves[:count], strict=True))
        del self._versions[:count], self._leaves[:count]
        self._drop_blocks(self._base, self._base + count)
        self._base += count
        return dropped

    def _drop_blocks(self, old_base: int, new_base: int) -> None:
        level = 0
        while 1 << level <= new_base + len(self._versions):
            first_kept = (new_base + (1 << level) - 1) >> level
            for number in range(old_base >> level, first_kept):
                self._blocks.pop((level, number), None)
            level += 1


class _KeyRuns(_Runs[list[bytes], list[bytes]]):
    __slots__ = ()

    def _build(self, leaves: Sequence[list[bytes]]) -> list[bytes]:
        return sorted(chain.from_iterable(leaves))

    def _join(self, older: list[bytes], newer: list[bytes]) -> list[bytes]:
        # Two sorted halves: the sort finds them and merges in linear time.
        return sorted(older + newer)

    def _hit(self, block: list[bytes], begin: bytes, end: bytes) -> bool:
        position = bisect_left(block, begin)
        return position < len(block) and block[position] < end

    def first(self, after: int, begin: bytes, end: bytes) -> bytes | None:
        """The smallest key in [begin, end) of the runs with versions above `after`."""
        candidates = [
            block[position]
            for block in self._newer(after)
            if (position := bisect_left(block, begin)) < len(block)
        ]
        first = min(candidates, default=end)
        return first if first < end else None


class _RangeRuns(_Runs[list[tuple[bytes, bytes]], Intervals]):
    __slots__ = ()

    def _build(self, leaves: Sequence[list[tuple[bytes, bytes]]]) -> Intervals:
        return Intervals(sorted(chain.from_iterable(leaves)))

    def _join(self, older: Intervals, newer: Intervals) -> Intervals:
        return Intervals(sorted(chain(older, newer)))

    def _hit(self, block: Intervals, begin: bytes, end: bytes) -> bool:
        return block.overlaps(begin, end)


class RecentWrites:
    """The writes of the last `WINDOW` seconds of one store.

    `version` is the version the store is at when it is opened; older snapshots cannot be checked.
    """

    __slots__ = ("_batches", "_floor", "_keys", "_last", "_ranges")

    def __init__(self, version: int) -> None:
        self._floor = version
        self._last: dict[bytes, int] = {}
        self._keys = _KeyRuns()
        self._ranges = _RangeRuns()
        self._batches: deque[tuple[float, int]] = deque()

    def check(self, request: CommitRequest) -> Refusal | None:
        """Whether what the request has read is still what it was at its read version."""
        since = request.read_version
        if since < self._floor and (request.read_keys or request.read_ranges):
            return Refusal.TOO_OLD
        last = self._last
        for key in request.read_keys:
            if last.get(key, since) > since:
                return Refusal.CONFLICT
        if self._ranges.newest > since:
            for key in request.read_keys:
                if self._ranges.hits(since, key, key + b"\0"):
                    return Refusal.CONFLICT
        for begin, end in request.read_ranges:
            if self.wrote(begin, end, since):
                return Refusal.CONFLICT
        return None

    def wrote(self, begin: bytes, end: bytes, after: int) -> bool:
        """Whether a commit with a version above `after` wrote something in [begin, end)."""
        return self._keys.hits(after, begin, end) or self._ranges.hits(after, begin, end)

    def wrote_key(self, key: bytes, after: int) -> bool:
        """Whether a commit with a version above `after` wrote `key`."""
        return self._last.get(key, after) > after or self._ranges.hits(after, key, key + b"\0")

    def first_written(self, begin: bytes, end: bytes, after: int) -> bytes | None:
        """The smallest key in [begin, end) that was set, or cleared by itself, after a version."""
        return self._keys.first(after, begin, end)

    def covers(self, version: int) -> bool:
        """Whether all writes of the versions above this one are known."""
        return version >= self._floor

    def record(self, request: CommitRequest, version: int, position: int) -> None:
        """Note the writes of a request that was admitted, at its place in the batch `version`."""
        keys = [*request.writes, *request.adds, *request.write_keys]
        if request.stamped:
            keys += [key for key, _ in stamped_rows(request, version, position)]
        if keys:
            self._keys.append(version, keys)
            self._last.update(dict.fromkeys(keys, version))
        if request.clears or request.write_ranges:
            self._ranges.append(version, [*request.clears, *request.write_ranges])

    def expire(self, now: float, version: int) -> None:
        """Note that the store is at `version` at `now` (s), and forget what left the window."""
        batches = self._batches
        batches.append((now, version))
        while now - batches[0][0] > WINDOW:
            self._floor = batches.popleft()[1]
        for old, keys in self._keys.drop_through(self._floor):
            for key in keys:
                if self._last.get(key) == old:
                    del self._last[key]
        self._ranges.drop_through(self._floor)
