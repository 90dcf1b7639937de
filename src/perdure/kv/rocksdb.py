"""The embedded store: RocksDB in a folder, one process, one flush for each group of commits.

A commit batch is resolved and written on the event loop's thread (microseconds per transaction),
then the write-ahead log is flushed in a thread of its own. Two facts decide this shape: writing
holds Python's global lock anyway, flushing the log releases it. The state after the write is
captured as a snapshot at once but handed out only when the flush has returned: nobody ever reads
what a power cut could take back.

Adds are resolved here into plain values, which is safe because this is the only writer. Clears of
ranges become deletions of single keys while these are few, because range tombstones slow down every
later read around them.

Layout of the folder: `owner` (see `owner.py`) and `rocksdb/`. The last version is stored in a
reserved key with every batch, so versions and versionstamps grow for ever.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, Self, TypeVar

from rocksdict import (
    AccessType,
    Rdict,
    RdictIter,
    ReadOptions,
    Snapshot as NativeSnapshot,
    WriteBatch,
)

from perdure.clock import SYSTEM_CLOCK, Clock
from perdure.kv.conflicts import RecentWrites
from perdure.kv.driver import CommitRequest, CommitResult, Committed, added, stamped_rows
from perdure.kv.errors import StoreClosed, StoreFailed, StoreReadOnly
from perdure.kv.gaps import Gaps
from perdure.kv.owner import Owner
from perdure.kv.rocksdb_options import options

__all__ = ["ReadonlyRocksDriver", "RocksDriver", "RocksSnapshot"]

T = TypeVar("T")

VERSION_KEY: Final = b"\xff/version"
_DELETE_ONE_BY_ONE: Final = 256
_FLUSH_HERE_SECONDS: Final = 0.0005
"""A flush expected to take less than this is done on the loop's own thread: handing it to another
thread and hearing of its end costs a good part of that, and a pause this short hurts nobody."""


class RocksSnapshot:
    """One state of the store.

    Made while the newest state of the database is the one to capture. Holds two views of it: a
    snapshot for point reads, and an iterator, which keeps seeing the state it was made in. (The
    iterators a snapshot of `rocksdict` hands out do not: they show the newest state.) One iterator
    serves all range reads, as none of them is suspended half way.
    """

    __slots__ = ("__weakref__", "_points", "_rows", "_store", "version")

    def __init__(self, store: _Store, database: Rdict, version: int) -> None:
        self._store = store
        self._points: NativeSnapshot | None = database.snapshot()
        self._rows: RdictIter | None = database.iter()
        self.version = version

    async def get(self, key: bytes) -> bytes | None:
        points = self._points
        if points is None:
            raise self._store.closed()
        try:
            value: bytes = points[key]
        except Exception:
            # A miss and a failure look alike here.
            return self._get_again(key)
        return value

    async def get_range(
        self, begin: bytes, end: bytes, limit: int, reverse: bool
    ) -> list[tuple[bytes, bytes]]:
        rows = self._rows
        if rows is None:
            raise self._store.closed()
        valid, key_at, value_at = rows.valid, rows.key, rows.value
        found: list[tuple[bytes, bytes]] = []
        if reverse:
            step = rows.prev
            rows.seek_for_prev(end)
            if valid() and key_at() == end:
                step()
        else:
            step = rows.next
            self._store.seek(rows, begin, self.version)
        while valid():
            key = key_at()
            if not begin <= key < end:
                return found
            found.append((key, value_at()))
            if len(found) == limit:
                return found
            step()
        self._check(rows)
        return found

    def detach(self) -> None:
        """Let go of the store, which cannot close before."""
        self._points = self._rows = None

    def _get_again(self, key: bytes) -> bytes | None:
        """Tell a missing key from a failure to read it."""
        if self._store.unchanged(key, self.version):
            return self._store.get_newest(key)
        rows = self._rows
        assert rows is not None
        rows.seek(key)
        if rows.valid():
            value: bytes = rows.value()
            return value if rows.key() == key else None
        self._check(rows)
        return None

    def _check(self, rows: RdictIter) -> None:
        """An iterator also stops when it cannot read on."""
        try:
            rows.status()
        except Exception as error:
            raise self._store.failed_to_read(error) from error


class _Store:
    """What an owned and a read-only store share: the database, its thread, its snapshots."""

    def __init__(self, path: Path, database: Rdict, thread: ThreadPoolExecutor) -> None:
        self._path = path
        self._db = database
        self._thread = thread
        self._closed = False
        stored: bytes | None = database.get(VERSION_KEY)
        self._version = 0 if stored is None else int.from_bytes(stored, "big")
        self._recent = RecentWrites(self._version)
        self._gaps = Gaps(self._recent)
        self.seek = self._gaps.seek
        self._snapshots: weakref.WeakSet[RocksSnapshot] = weakref.WeakSet()
        self._snapshot = self._capture()

    @property
    def path(self) -> Path:
        return self._path

    def unchanged(self, key: bytes, version: int) -> bool:
        """Whether the newest value of `key` is surely the one of `version`."""
        return self._recent.covers(version) and not self._recent.wrote_key(key, version)

    def get_newest(self, key: bytes) -> bytes | None:
        try:
            value: bytes | None = self._db.get(key)
        except Exception as error:
            raise self.failed_to_read(error) from error
        return value

    def closed(self) -> StoreClosed:
        return StoreClosed(str(self._path))

    def failed_to_read(self, error: Exception) -> StoreFailed:
        return StoreFailed(str(self._path), f"reading: {error}")

    def snapshot(self) -> RocksSnapshot:
        if self._closed:
            raise self.closed()
        return self._snapshot

    def _capture(self) -> RocksSnapshot:
        snapshot = RocksSnapshot(self, self._db, self._version)
        self._snapshots.add(snapshot)
        return snapshot

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        for snapshot in list(self._snapshots):
            snapshot.detach()
        await _in_thread(self._thread, self._db.close)
        self._thread.shutdown(wait=False)


class RocksDriver(_Store):
    """See `perdure.kv.driver.Driver`. Made by `open`."""

    def __init__(
        self, path: Path, database: Rdict, thread: ThreadPoolExecutor, owner: Owner, clock: Clock
    ) -> None:
        super().__init__(path, database, thread)
        self._owner = owner
        self._clock = clock
        self._failure: str | None = None
        # Smoothed time of one flush; begins high, so that an unknown disk never blocks the loop.
        self._flush_seconds = 4 * _FLUSH_HERE_SECONDS

    @classmethod
    async def open(cls, path: Path, *, clock: Clock = SYSTEM_CLOCK) -> Self:
        """Open or make the store in the folder `path` and own it.

        Raises `StoreInUse` if another one owns it, `StoreFailed` if it cannot be opened.
        """
        owner = Owner(path)
        thread = ThreadPoolExecutor(1, thread_name_prefix="perdure-rocksdb")
        try:
            database = await _in_thread(
                thread, lambda: Rdict(str(path / "rocksdb"), options=options())
            )
            return cls(path, database, thread, owner, clock)
        except Exception as error:
            thread.shutdown(wait=False)
            owner.release()
            raise StoreFailed(str(path), str(error)) from error

    async def commit(self, batch: Sequence[CommitRequest]) -> Sequence[CommitResult]:
        if self._closed:
            raise self.closed()
        if self._failure is not None:
            raise StoreFailed(str(self._path), self._failure)
        self._version += 1
        try:
            batch_write = _BatchWrite(self._db, self._recent, self._version)
            results = batch_write.resolve(batch)
        except Exception as error:
            self._failure = f"reading during a commit: {error}"
            raise StoreFailed(str(self._path), self._failure) from error
        if not batch_write.committed:
            return results
        try:
            await self._write(batch_write.finish())
        except Exception as error:
            self._failure = f"writing: {error}"
            raise
        self._recent.expire(self._clock.monotonic(), self._version)
        return results

    async def _write(self, write: WriteBatch) -> None:
        self._db.write(write)
        snapshot = self._capture()
        if self._flush_seconds < _FLUSH_HERE_SECONDS:
            self._flush()
        else:
            await _in_thread(self._thread, self._flush)
        self._snapshot = snapshot

    def _flush(self) -> None:
        began = self._clock.monotonic()
        self._db.flush_wal(True)
        self._flush_seconds += (self._clock.monotonic() - began - self._flush_seconds) / 4

    async def close(self) -> None:
        await super().close()
        self._owner.release()


class ReadonlyRocksDriver(_Store):
    """The store as it was when it was opened; the owner, if any, is not disturbed."""

    @classmethod
    async def open(cls, path: Path) -> Self:
        """Raises `StoreFailed` if there is no readable store in the folder `path`."""
        thread = ThreadPoolExecutor(1, thread_name_prefix="perdure-rocksdb")
        try:
            return cls(path, await _in_thread(thread, lambda: _open_readonly(path)), thread)
        except Exception as error:
            thread.shutdown(wait=False)
            raise StoreFailed(str(path), str(error)) from error

    async def commit(self, batch: Sequence[CommitRequest]) -> Sequence[CommitResult]:  # noqa: ARG002
        raise StoreReadOnly(str(self._path))


class _BatchWrite:
    """Turns the requests of one batch, in order, into one RocksDB write batch."""

    def __init__(self, database: Rdict, recent: RecentWrites, version: int) -> None:
        self._db = database
        self._recent = recent
        self._version = version
        self._write = WriteBatch(raw_mode=True)
        self._position = -1
        # What this batch makes of the keys that some of its requests add to.
        self._counters: dict[bytes, bytes | None] = {}
        self.committed = False

    def resolve(self, batch: Sequence[CommitRequest]) -> list[CommitResult]:
        counted: set[bytes] = set().union(*(request.adds for request in batch if request.adds))
        return [self._resolve(request, counted) for request in batch]

    def finish(self) -> WriteBatch:
        self._write.put(VERSION_KEY, self._version.to_bytes(8, "big"))
        return self._write

    def _resolve(self, request: CommitRequest, counted: set[bytes]) -> CommitResult:
        self._position += 1
        refusal = self._recent.check(request)
        if refusal is not None:
            return refusal
        write = self._write
        for begin, end in request.clears:
            self._clear(begin, end)
        for key, value in request.writes.items():
            if value is None:
                write.delete(key)
            else:
                write.put(key, value)
        if counted:
            self._count(request, counted)
        if request.stamped:
            for key, value in stamped_rows(request, self._version, self._position):
                write.put(key, value)
        self._recent.record(request, self._version, self._position)
        self.committed = True
        return Committed(self._version, self._position)

    def _count(self, request: CommitRequest, counted: set[bytes]) -> None:
        counters = self._counters
        for begin, end in request.clears:
            counters.update(dict.fromkeys(key for key in counted if begin <= key < end))
        for key in counted & request.writes.keys():
            counters[key] = request.writes[key]
        for key, delta in request.adds.items():
            current = counters[key] if key in counters else self._db.get(key)
            value = counters[key] = added(current, delta)
            self._write.put(key, value)

    def _clear(self, begin: bytes, end: bytes) -> None:
        # Keys that earlier requests of this batch wrote are not in the database yet.
        if not self._recent.wrote(begin, end, self._version - 1):
            bounds = ReadOptions()
            bounds.set_iterate_upper_bound(end)
            rows = self._db.iter(bounds)
            rows.seek(begin)
            keys: list[bytes] = []
            while rows.valid() and len(keys) <= _DELETE_ONE_BY_ONE:
                keys.append(rows.key())
                rows.next()
            rows.status()
            if len(keys) <= _DELETE_ONE_BY_ONE:
                for key in keys:
                    self._write.delete(key)
                return
        self._write.delete_range(begin, end)


def _open_readonly(path: Path) -> Rdict:
    folder = path / "rocksdb"
    if not (folder / "CURRENT").exists():
        # RocksDB would leave an empty folder behind.
        raise FileNotFoundError("there is no store")
    access = AccessType.read_only(False)
    return Rdict(str(folder), options=options(), access_type=access)


async def _in_thread(thread: ThreadPoolExecutor, call: Callable[[], T]) -> T:
    return await asyncio.get_running_loop().run_in_executor(thread, call)
