"""What a store must be able to do, and the words a commit is described in.

A driver is small on purpose: hand out the newest durable snapshot, and commit a batch. Everything
that all stores have in common (read-your-writes, limits, retries, batching) lives above it.

Rules a driver keeps:

* A version becomes readable only after it is durable, never before. Otherwise a transaction could
  start at a version whose data it cannot see yet, and lose an update.
* Requests of a batch are resolved in order. A request is refused iff something it read was written
  by a commit with a version above its read version, earlier requests of the same batch included.
  Blind writes never conflict.
* A batch is atomic and costs one flush. All of it gets one version; the position in the batch makes
  versionstamps unique. Versions grow for ever, across restarts too.

Errors of `commit`: `StoreFailed` / `StoreClosed` / `StoreReadOnly` say that nothing was written;
any other exception leaves the outcome of the whole batch unknown, and the driver refuses from then.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import NamedTuple, Protocol

__all__ = [
    "CommitRequest",
    "CommitResult",
    "Committed",
    "Driver",
    "Refusal",
    "Snapshot",
    "Stamped",
    "added",
    "stamped_rows",
    "versionstamp",
]

_INT64 = struct.Struct("<q")
_STAMP = struct.Struct(">QH")


class Stamped(NamedTuple):
    """A row whose key gets the 10-byte versionstamp of its commit between prefix and suffix."""

    prefix: bytes
    suffix: bytes
    value: bytes


@dataclass(slots=True)
class CommitRequest:
    """One transaction as its driver sees it.

    The writes are in a normal form that no longer depends on the order of the calls: first all
    `clears` apply, then `writes` (None clears one key), `adds` and `stamped`, whose keys are
    disjoint. `write_keys` and `write_ranges` only count as written, they change nothing. `size` is
    the number of bytes written. The driver must not change any of the collections.
    """

    name: str
    read_version: int
    read_keys: Collection[bytes]
    read_ranges: Sequence[tuple[bytes, bytes]]
    clears: Collection[tuple[bytes, bytes]]
    writes: dict[bytes, bytes | None]
    adds: dict[bytes, int]
    stamped: Sequence[Stamped]
    write_keys: Sequence[bytes]
    write_ranges: Sequence[tuple[bytes, bytes]]
    size: int


class Committed(NamedTuple):
    """The transaction is durable; `position` is its place in the batch."""

    version: int
    position: int


class Refusal(Enum):
    """Why a request was not applied (or, for UNKNOWN, why nobody can say)."""

    CONFLICT = "conflict"
    TOO_OLD = "too old"
    UNKNOWN = "unknown"


CommitResult = Committed | Refusal


class Snapshot(Protocol):
    """The state of the store at `version`; it stays readable for as long as it is referenced."""

    @property
    def version(self) -> int:
        """The version of the newest commit that is in it."""
        ...

    async def get(self, key: bytes) -> bytes | None:
        """The value of one key, or None."""
        ...

    async def get_range(
        self, begin: bytes, end: bytes, limit: int, reverse: bool
    ) -> list[tuple[bytes, bytes]]:
        """Rows of [begin, end) in order (from the end if `reverse`), at most `limit` if not 0."""
        ...


class Driver(Protocol):
    """A store. Used from one event loop; `commit` is never called twice at the same time."""

    @property
    def path(self) -> Path | None:
        """Where the store lives on this machine, if it is in a folder."""
        ...

    def snapshot(self) -> Snapshot:
        """The newest durable state. Cheap: called once per transaction."""
        ...

    async def commit(self, batch: Sequence[CommitRequest]) -> Sequence[CommitResult]:
        """Resolve and apply in order, atomically and durably; one result per request."""
        ...

    async def close(self) -> None:
        """Let go of the store; later calls raise `StoreClosed`. Harmless when already closed."""
        ...


def added(current: bytes | None, delta: int) -> bytes:
    """`current` + `delta` as a little-endian signed 64-bit integer that wraps around.

    A missing value counts as 0; a value of another length is cut or filled up to 8 bytes.
    """
    number = 0
    if current is not None:
        number = _INT64.unpack(current if len(current) == 8 else current[:8].ljust(8, b"\0"))[0]
    return _INT64.pack((number + delta + (1 << 63)) % (1 << 64) - (1 << 63))


def versionstamp(version: int, position: int) -> bytes:
    """The 10 bytes that order this commit among all others of the store, for ever."""
    return _STAMP.pack(version, position)


def stamped_rows(request: CommitRequest, version: int, position: int) -> list[tuple[bytes, bytes]]:
    """The rows of `request.stamped` with their keys filled in."""
    stamp = versionstamp(version, position)
    return [(prefix + stamp + suffix, value) for prefix, suffix, value in request.stamped]
