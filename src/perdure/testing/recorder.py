"""Watches transactions: every operation, every answer, every outcome.

Owns the record of a run against a real `Database`, on which `perdure.testing.serializability` then
passes judgement. A recorder hands out transactions that look like the database's own. Each attempt
is kept, the refused ones too: even a transaction that never commits must have seen one state.

Each attempt that writes also leaves a mark: a row whose key holds its versionstamp and its number,
far from everybody else's keys. Marks are the store's own testimony. They say in which order things
happened, whether an attempt with an unknown outcome happened at all, and whether one that was
acknowledged happened exactly once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, TypeAlias, TypeVar

from perdure.kv.database import Database
from perdure.kv.errors import RetriesExhausted, Retryable
from perdure.kv.transaction import Transaction

__all__ = [
    "Add",
    "Attempt",
    "Clear",
    "Get",
    "GetRange",
    "Operation",
    "Outcome",
    "RecordedTransaction",
    "Recorder",
    "Set",
    "read_marks",
]

T = TypeVar("T")

MARKS: Final = b"\xfe\xfe/marks/"
_STAMP_BYTES: Final = 10


@dataclass(frozen=True, slots=True)
class Get:
    """A read of one key, and its answer."""

    key: bytes
    value: bytes | None
    snapshot: bool


@dataclass(frozen=True, slots=True)
class GetRange:
    """A read of the rows in [begin, end), and its answer. A `limit` of 0 is none."""

    begin: bytes
    end: bytes
    limit: int
    reverse: bool
    rows: tuple[tuple[bytes, bytes], ...]
    snapshot: bool


@dataclass(frozen=True, slots=True)
class Set:
    """A write of one key."""

    key: bytes
    value: bytes


@dataclass(frozen=True, slots=True)
class Clear:
    """The removal of all rows in [begin, end)."""

    begin: bytes
    end: bytes


@dataclass(frozen=True, slots=True)
class Add:
    """An atomic addition to a little-endian 64-bit integer."""

    key: bytes
    delta: int


Operation: TypeAlias = Get | GetRange | Set | Clear | Add


class Outcome(Enum):
    """What became of an attempt, as far as its owner was told."""

    OPEN = "open"
    COMMITTED = "committed"
    REFUSED = "refused"
    UNKNOWN = "unknown"


@dataclass(slots=True)
class Attempt:
    """One transaction from its start to its outcome.

    `began` and `ended` are ticks of one counter: if A ended before B began, the world could know
    of A when it started B. `stamp` is the versionstamp of a commit that wrote something.
    """

    number: int
    name: str
    read_version: int
    began: int
    ended: int | None = None
    outcome: Outcome = Outcome.OPEN
    stamp: bytes | None = None
    operations: list[Operation] = field(default_factory=list)

    @property
    def writes(self) -> bool:
        return any(isinstance(operation, Set | Clear | Add) for operation in self.operations)

    def __str__(self) -> str:
        return f"{self.name}#{self.number}"


class RecordedTransaction:
    """A transaction that tells its recorder everything."""

    __slots__ = ("_attempt", "_inner", "_recorder")

    def __init__(self, recorder: Recorder, inner: Transaction, attempt: Attempt) -> None:
        self._recorder = recorder
        self._inner = inner
        self._attempt = attempt

    async def get(self, key: bytes, *, snapshot: bool = False) -> bytes | None:
        value = await self._inner.get(key, snapshot=snapshot)
        self._attempt.operations.append(Get(key, value, snapshot))
        return value

    async def get_range(
        self,
        begin: bytes,
        end: bytes,
        *,
        limit: int = 0,
        reverse: bool = False,
        snapshot: bool = False,
    ) -> list[tuple[bytes, bytes]]:
        rows = await self._inner.get_range(
            begin, end, limit=limit, reverse=reverse, snapshot=snapshot
        )
        self._attempt.operations.append(GetRange(begin, end, limit, reverse, tuple(rows), snapshot))
        return rows

    def set(self, key: bytes, value: bytes) -> None:
        self._inner.set(key, value)
        self._attempt.operations.append(Set(key, value))

    def clear(self, key: bytes) -> None:
        self._inner.clear(key)
        self._attempt.operations.append(Clear(key, key + b"\x00"))

    def clear_range(self, begin: bytes, end: bytes) -> None:
        self._inner.clear_range(begin, end)
        self._attempt.operations.append(Clear(begin, end))

    def add(self, key: bytes, delta: int) -> None:
        self._inner.add(key, delta)
        self._attempt.operations.append(Add(key, delta))

    async def commit(self) -> int:
        """Commit, and record what was heard. Raises what the database raises."""
        attempt = self._attempt
        if attempt.writes:
            suffix = attempt.number.to_bytes(8, "big")
            self._inner.set_versionstamped(MARKS, suffix, b"")
        try:
            version = await self._inner.commit()
        except Retryable:
            attempt.outcome = Outcome.REFUSED
            raise
        except BaseException:
            attempt.outcome = Outcome.UNKNOWN
            raise
        finally:
            attempt.ended = self._recorder.tick()
        attempt.outcome = Outcome.COMMITTED
        if attempt.writes:
            attempt.stamp = self._inner.versionstamp
        return version


class Recorder:
    """Hands out recorded transactions of one database and keeps all `attempts`."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.attempts: list[Attempt] = []
        self._ticks = 0

    def tick(self) -> int:
        """The next moment in the order of things as the clients see it."""
        self._ticks += 1
        return self._ticks

    def transaction(self, name: str) -> RecordedTransaction:
        """Start one attempt."""
        began = self.tick()
        inner = self.database.transaction(name)
        attempt = Attempt(len(self.attempts), name, inner.read_version, began)
        self.attempts.append(attempt)
        return RecordedTransaction(self, inner, attempt)

    async def run(
        self,
        body: Callable[[RecordedTransaction], Awaitable[T]],
        *,
        name: str,
        attempts: int = 1000,
    ) -> T:
        """Run `body` and commit, again and again while refused. Raises `RetriesExhausted`."""
        last: BaseException | None = None
        for _ in range(attempts):
            transaction = self.transaction(name)
            try:
                result = await body(transaction)
                await transaction.commit()
            except Retryable as refusal:
                last = refusal
                await asyncio.sleep(0)
            else:
                return result
        assert last is not None
        raise RetriesExhausted(name, attempts, last)


async def read_marks(database: Database) -> list[tuple[bytes, int]]:
    """Read the marks that recorded attempts left: (versionstamp, number), in commit order."""
    marks: list[tuple[bytes, int]] = []
    transaction = database.transaction("marks")
    async for key, _ in transaction.scan(MARKS, MARKS + b"\xff" * 32, snapshot=True):
        stamp = key[len(MARKS) : len(MARKS) + _STAMP_BYTES]
        number = int.from_bytes(key[len(MARKS) + _STAMP_BYTES :], "big")
        marks.append((stamp, number))
    return marks
