"""A transaction: reads at one snapshot, writes in a buffer, everything or nothing at commit.

All drivers share this class, so what a transaction means does not depend on the store:

* **Opaque**: all reads see the same state, plus the transaction's own writes, always. A body can
  never act on a state that did not exist, not even in an attempt that is refused later.
* **Serializable unless asked otherwise**: every read adds what it depended on to the read set; the
  commit is refused if any of it was written since the snapshot. `snapshot=True` reads add nothing.
  Reading only what the transaction itself has set or cleared depends on nothing.
* A range read depends on what it returned: with `limit` reached, up to and including the last
  returned key, otherwise on the whole range (so that rows that appear in it later count).
* Commits cannot be cancelled half way. Cancelling whoever waits for `commit` cancels the waiting.

A transaction belongs to one task. Concurrent reads in it are fine; each sees the writes made before
it was called.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Final

from perdure.clock import Clock
from perdure.kv.buffer import Window, WriteBuffer
from perdure.kv.driver import CommitRequest, Committed, Snapshot, Stamped, added, versionstamp
from perdure.kv.errors import (
    InvalidRange,
    TransactionClosed,
    TransactionTooLarge,
    TransactionTooOld,
    VersionstampUnknown,
)
from perdure.kv.limits import (
    KEY_BYTES,
    RESERVED,
    TRANSACTION_BYTES,
    TRANSACTION_SECONDS,
    VALUE_BYTES,
    check_range,
    refuse_key,
    refuse_row,
)

__all__ = ["Outcome", "Submit", "Transaction"]

Outcome = Committed | BaseException
Submit = Callable[[CommitRequest], asyncio.Future[Outcome]]

_STAMP_BYTES: Final = 10
_HIGHEST_STAMP: Final = b"\xff" * _STAMP_BYTES
_MISSING: Final = object()


class Transaction:
    """Made by `Database.transaction`; see the module for what it promises.

    Any call may raise `TransactionClosed` after `commit`, `KeyTooLarge`, `ValueTooLarge`,
    `ReservedKey` or `InvalidRange` for its arguments, and reads raise `TransactionTooOld` after
    `TRANSACTION_SECONDS`.
    """

    __slots__ = (
        "_buffer",
        "_clock",
        "_committed",
        "_open",
        "_read_keys",
        "_read_ranges",
        "_size",
        "_snapshot",
        "_started",
        "_submit",
        "_write_keys",
        "_write_ranges",
        "name",
        "read_version",
    )

    def __init__(self, snapshot: Snapshot, submit: Submit, clock: Clock, name: str) -> None:
        self.name = name
        self.read_version: int = snapshot.version
        self._snapshot = snapshot
        self._submit = submit
        self._clock = clock
        self._started = clock.monotonic()
        self._open = True
        self._size = 0
        self._buffer = WriteBuffer()
        self._read_keys: set[bytes] = set()
        self._read_ranges: list[tuple[bytes, bytes]] = []
        self._write_keys: list[bytes] = []
        self._write_ranges: list[tuple[bytes, bytes]] = []
        self._committed: Committed | None = None

    async def get(self, key: bytes, *, snapshot: bool = False) -> bytes | None:
        """The value of `key`, or None if it is not set."""
        self._check_readable()
        if len(key) > KEY_BYTES or key >= RESERVED:
            refuse_key(key)
        buffer = self._buffer
        delta = None
        if buffer:
            written = buffer.writes.get(key, _MISSING)
            if written is not _MISSING:
                return written  # type: ignore[return-value]  # the sentinel is excluded
            if buffer.cleared(key):
                return None
            if buffer.stamped:
                self._check_no_stamp_in(key, key + b"\0", "reading that key")
            delta = buffer.adds.get(key)
        if not snapshot:
            self._read_keys.add(key)
        value = await self._snapshot.get(key)
        return value if delta is None else added(value, delta)

    async def get_range(
        self,
        begin: bytes,
        end: bytes,
        *,
        limit: int = 0,
        reverse: bool = False,
        snapshot: bool = False,
    ) -> list[tuple[bytes, bytes]]:
        """The rows of [begin, end) in key order, from the end if `reverse`; `limit` 0 means all."""
        self._check_readable()
        check_range(begin, end)
        if limit < 0:
            raise InvalidRange(begin, end, f"its limit is {limit}")
        if begin == end:
            return []
        buffer = self._buffer
        if buffer.stamped:
            self._check_no_stamp_in(begin, end, "reading that range")
        window = buffer.window(begin, end) if buffer else None
        if window is None:
            rows = await self._snapshot.get_range(begin, end, limit, reverse)
        else:
            rows = await self._read_window(window, limit, reverse)
        if not snapshot:
            if limit and len(rows) == limit:
                last = rows[-1][0]
                self._add_read_range(last if reverse else begin, end if reverse else last + b"\0")
            else:
                self._add_read_range(begin, end)
        return rows

    async def scan(
        self,
        begin: bytes,
        end: bytes,
        *,
        reverse: bool = False,
        snapshot: bool = False,
        page: int = 512,
    ) -> AsyncIterator[tuple[bytes, bytes]]:
        """The rows of a range that may be large, read `page` rows at a time.

        Lets other tasks run between pages. Depends only on the pages that were read. Writes made
        while scanning are seen from the next page on.
        """
        while True:
            rows = await self.get_range(begin, end, limit=page, reverse=reverse, snapshot=snapshot)
            for row in rows:
                yield row
            if len(rows) < page:
                return
            if reverse:
                end = rows[-1][0]
            else:
                begin = rows[-1][0] + b"\0"
            await self._clock.sleep(0)

    def set(self, key: bytes, value: bytes) -> None:
        """Set `key` to `value`."""
        if not isinstance(value, bytes) or len(value) > VALUE_BYTES:  # type: ignore[redundant-expr]
            refuse_row(key, value)
        self._note_write(key, len(value))
        self._buffer.put(key, value)

    def clear(self, key: bytes) -> None:
        """Remove `key` if it is set."""
        self._note_write(key, 0)
        self._buffer.put(key, None)

    def clear_range(self, begin: bytes, end: bytes) -> None:
        """Remove all keys of [begin, end)."""
        check_range(begin, end)
        self._note_size(len(begin) + len(end))
        if begin == end:
            return
        buffer = self._buffer
        if buffer.stamped:
            kept = [row for row in buffer.stamped if not self._stamp_is_in(row, begin, end)]
            buffer.stamped = kept
            self._check_no_stamp_in(begin, end, "clearing a part of its possible keys")
        buffer.clear_range(begin, end)

    def add(self, key: bytes, delta: int) -> None:
        """Add to the little-endian signed 64-bit integer at `key` (0 if not set); wraps around.

        Does not depend on the value, so concurrent adds neither conflict nor get lost.
        """
        self._note_write(key, 8)
        self._buffer.add(key, delta)

    def set_versionstamped(self, prefix: bytes, suffix: bytes, value: bytes) -> None:
        """Set the key `prefix` + versionstamp of this commit + `suffix`.

        The 10-byte stamp is larger than those of all earlier commits. Until the commit nobody knows
        the key: reading a range that would hold it raises `VersionstampUnknown`.
        """
        if not isinstance(value, bytes) or len(value) > VALUE_BYTES:  # type: ignore[redundant-expr]
            refuse_row(prefix, value)
        key = prefix + _HIGHEST_STAMP + suffix
        if len(key) > KEY_BYTES or prefix >= RESERVED or not prefix:
            refuse_key(key)
        self._note_size(len(key) + len(value))
        self._buffer.stamped.append(Stamped(prefix, suffix, value))

    def add_read_conflict(self, key: bytes) -> None:
        """Be refused if `key` is written before this commits, as if it had been read."""
        self._check_open()
        if len(key) > KEY_BYTES or key >= RESERVED:
            refuse_key(key)
        self._read_keys.add(key)

    def add_read_conflict_range(self, begin: bytes, end: bytes) -> None:
        """Be refused if anything in [begin, end) is written before this commits."""
        self._check_open()
        check_range(begin, end)
        if begin < end:
            self._add_read_range(begin, end)

    def add_write_conflict(self, key: bytes) -> None:
        """Make concurrent readers of `key` conflict, as if it had been written."""
        self._note_write(key, 0)
        self._write_keys.append(key)

    def add_write_conflict_range(self, begin: bytes, end: bytes) -> None:
        """Make concurrent readers of [begin, end) conflict, as if it had been written."""
        check_range(begin, end)
        self._note_size(len(begin) + len(end))
        if begin < end:
            self._write_ranges.append((begin, end))

    async def commit(self) -> int:
        """Make the writes durable and return the commit version.

        A transaction without writes has nothing to decide: it returns its read version, no I/O.

        Raises `TransactionConflict` or `TransactionTooOld` (nothing was written; `Database.run`
        runs the body again), `CommitUnknown` (nobody knows), or `StoreFailed` (nothing was
        written). If the waiting is cancelled, the commit still takes place.
        """
        self._check_open()
        self._open = False
        buffer = self._buffer
        if not (buffer or self._write_keys or self._write_ranges):
            return self.read_version
        if self._clock.monotonic() - self._started > TRANSACTION_SECONDS:
            raise TransactionTooOld(self.name, TRANSACTION_SECONDS)
        # A bare future and no shield: the committer owns the request, the future only tells us.
        outcome = await self._submit(
            CommitRequest(
                self.name,
                self.read_version,
                self._read_keys,
                self._read_ranges,
                () if buffer.clears is None else list(buffer.clears),
                buffer.writes,
                buffer.adds,
                buffer.stamped,
                self._write_keys,
                self._write_ranges,
                self._size,
            )
        )
        if isinstance(outcome, BaseException):
            raise outcome
        self._committed = outcome
        return outcome.version

    @property
    def versionstamp(self) -> bytes:
        """The 10 bytes that order this commit among all others; only after a commit with writes."""
        if self._committed is None:
            raise VersionstampUnknown(self.name, "its versionstamp")
        return versionstamp(*self._committed)

    async def _read_window(
        self, window: Window, limit: int, reverse: bool
    ) -> list[tuple[bytes, bytes]]:
        enough = window.fetch_limit(limit)
        fetched: list[tuple[bytes, bytes]] = []
        for begin, end in reversed(window.gaps) if reverse else window.gaps:
            rest = enough - len(fetched) if enough else 0
            fetched += await self._snapshot.get_range(begin, end, rest, reverse)
            if enough and len(fetched) == enough:
                break
        cut_off = enough > 0 and len(fetched) == enough
        return window.merge(fetched, cut_off, limit, reverse)

    def _check_open(self) -> None:
        if not self._open:
            raise TransactionClosed(self.name)

    def _check_readable(self) -> None:
        if not self._open:
            raise TransactionClosed(self.name)
        if self._clock.monotonic() - self._started > TRANSACTION_SECONDS:
            raise TransactionTooOld(self.name, TRANSACTION_SECONDS)

    def _note_write(self, key: bytes, value_size: int) -> None:
        if len(key) > KEY_BYTES or key >= RESERVED:
            refuse_key(key)
        self._note_size(len(key) + value_size)

    def _note_size(self, size: int) -> None:
        if not self._open:
            raise TransactionClosed(self.name)
        self._size += size
        if self._size > TRANSACTION_BYTES:
            raise TransactionTooLarge(self.name, self._size, TRANSACTION_BYTES)

    def _add_read_range(self, begin: bytes, end: bytes) -> None:
        ranges = self._read_ranges
        if ranges and ranges[-1][1] == begin:
            begin = ranges.pop()[0]
        ranges.append((begin, end))

    def _stamp_bounds(self, row: Stamped) -> tuple[bytes, bytes]:
        lowest = versionstamp(self.read_version + 1, 0)
        return row.prefix + lowest + row.suffix, row.prefix + _HIGHEST_STAMP + row.suffix

    def _stamp_is_in(self, row: Stamped, begin: bytes, end: bytes) -> bool:
        low, high = self._stamp_bounds(row)
        return begin <= low and high < end

    def _check_no_stamp_in(self, begin: bytes, end: bytes, what: str) -> None:
        for row in self._buffer.stamped:
            low, high = self._stamp_bounds(row)
            if begin <= high and low < end:
                raise VersionstampUnknown(self.name, what)
