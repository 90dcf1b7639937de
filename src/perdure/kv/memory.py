"""A store in memory: for tests, simulations, and programs that need no durability.

Same meaning as every other driver, including versions and conflicts. "Durable" is what survives
`reopen`, the simulated restart after a `Crash`.

Each key holds a chain of versions, newest first, in a sorted dictionary. Open snapshots are plain
version numbers that walk the chain, so a snapshot costs nothing and copies nothing. A value nobody
can see any more is cut off when the oldest live snapshot has moved past its successor: snapshots
are watched by weak references, so it is enough to drop them.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from sortedcontainers import SortedDict

from perdure.clock import SYSTEM_CLOCK, Clock
from perdure.kv.conflicts import RecentWrites
from perdure.kv.driver import (
    CommitRequest,
    CommitResult,
    Committed,
    Refusal,
    added,
    stamped_rows,
)
from perdure.kv.errors import StoreClosed
from perdure.kv.faults import Crash, Faults, Kind

__all__ = ["MemoryDriver", "MemorySnapshot"]

# (version, value or None for "cleared", the next older state or None)
State = tuple[int, bytes | None, Any]


class MemorySnapshot:
    """The state at one version, for as long as this object lives."""

    __slots__ = ("__weakref__", "_driver", "version")

    def __init__(self, driver: MemoryDriver, version: int) -> None:
        self._driver = driver
        self.version = version

    async def get(self, key: bytes) -> bytes | None:
        rows = self._driver.rows()
        return self._visible(rows.get(key))

    async def get_range(
        self, begin: bytes, end: bytes, limit: int, reverse: bool
    ) -> list[tuple[bytes, bytes]]:
        rows = self._driver.rows()
        found: list[tuple[bytes, bytes]] = []
        for key in rows.irange(begin, end, (True, False), reverse=reverse):
            value = self._visible(rows[key])
            if value is not None:
                found.append((key, value))
                if len(found) == limit:
                    break
        return found

    def _visible(self, state: State | None) -> bytes | None:
        while state is not None and state[0] > self.version:
            state = state[2]
        return None if state is None else state[1]


class MemoryDriver:
    """See `perdure.kv.driver.Driver`. `faults` is where tests order trouble."""

    def __init__(self, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self.faults = Faults()
        self._clock = clock
        self._rows: Any = SortedDict()
        self._version = 0
        self._recent = RecentWrites(0)
        self._snapshot = MemorySnapshot(self, 0)
        self._alive: deque[weakref.ref[MemorySnapshot]] = deque([weakref.ref(self._snapshot)])
        self._outdated: deque[tuple[int, bytes]] = deque()
        self._crashed = False
        self._closed = False

    @property
    def path(self) -> Path | None:
        return None

    def snapshot(self) -> MemorySnapshot:
        self._check_usable()
        return self._snapshot

    def rows(self) -> Any:
        """The sorted rows; raises if the store has crashed or was closed."""
        self._check_usable()
        return self._rows

    async def commit(self, batch: Sequence[CommitRequest]) -> Sequence[CommitResult]:
        self._check_usable()
        version = self._version + 1
        results = [
            await self._commit(request, version, position) for position, request in enumerate(batch)
        ]
        self._publish(version)
        self._recent.expire(self._clock.monotonic(), version)
        return results

    async def close(self) -> None:
        self._closed = True

    def reopen(self) -> MemoryDriver:
        """Restart: a new driver on what is durable, without faults. This one is dead then."""
        self._crashed = True
        fresh = MemoryDriver(clock=self._clock)
        for key, state in self._rows.items():
            if state[1] is not None:
                fresh._rows[key] = (state[0], state[1], None)
        # Version + 1: a batch that died half way has used it.
        fresh._version = self._version + 1
        fresh._recent = RecentWrites(fresh._version)
        fresh._snapshot = MemorySnapshot(fresh, fresh._version)
        fresh._alive = deque([weakref.ref(fresh._snapshot)])
        return fresh

    async def _commit(self, request: CommitRequest, version: int, position: int) -> CommitResult:
        faults = self.faults.take(request)
        if Kind.DELAY in faults:
            await self._clock.sleep(faults[Kind.DELAY].seconds)
        if Kind.HOLD_BEFORE in faults:
            await faults[Kind.HOLD_BEFORE].gate.pass_through()
        if Kind.CRASH_BEFORE in faults:
            self._crash()
        if Kind.CONFLICT in faults:
            return Refusal.CONFLICT
        if Kind.UNKNOWN_NOT_APPLIED in faults:
            return Refusal.UNKNOWN
        refusal = self._recent.check(request)
        if refusal is not None:
            return refusal
        self._recent.record(request, version, position)
        self._apply(request, version, position)
        if Kind.HOLD_AFTER in faults:
            await faults[Kind.HOLD_AFTER].gate.pass_through()
        if Kind.CRASH_AFTER in faults:
            self._crash()
        if Kind.UNKNOWN_APPLIED in faults:
            return Refusal.UNKNOWN
        return Committed(version, position)

    def _check_usable(self) -> None:
        if self._crashed:
            raise Crash
        if self._closed:
            raise StoreClosed("memory:")

    def _crash(self) -> NoReturn:
        self._crashed = True
        raise Crash

    def _apply(self, request: CommitRequest, version: int, position: int) -> None:
        for begin, end in request.clears:
            for key in list(self._rows.irange(begin, end, (True, False))):
                self._write(key, None, version)
        for key, value in request.writes.items():
            self._write(key, value, version)
        for key, delta in request.adds.items():
            state = self._rows.get(key)
            self._write(key, added(state and state[1], delta), version)
        for key, value in stamped_rows(request, version, position):
            self._write(key, value, version)

    def _write(self, key: bytes, value: bytes | None, version: int) -> None:
        older: State | None = self._rows.get(key)
        if older is not None and older[0] == version:
            older = older[2]
        self._rows[key] = (version, value, older)
        if older is not None or value is None:
            self._outdated.append((version, key))

    def _publish(self, version: int) -> None:
        self._version = version
        self._snapshot = MemorySnapshot(self, version)
        self._alive.append(weakref.ref(self._snapshot))
        while (oldest := self._alive[0]()) is None:
            self._alive.popleft()
        while self._outdated and self._outdated[0][0] <= oldest.version:
            self._cut(self._outdated.popleft()[1], oldest.version)

    def _cut(self, key: bytes, oldest: int) -> None:
        """Drop the states of `key` that no snapshot from version `oldest` on can see."""
        state: State | None = self._rows.get(key)
        newer: list[State] = []
        while state is not None and state[0] > oldest:
            newer.append(state)
            state = state[2]
        kept: State | None = None
        if state is not None and state[1] is not None:
            kept = (state[0], state[1], None)
        for version, value, _ in reversed(newer):
            kept = (version, value, kept)
        if kept is None:
            self._rows.pop(key, None)
        else:
            self._rows[key] = kept
