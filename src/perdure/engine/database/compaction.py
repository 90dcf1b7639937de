"""Moving finished loop iterations from the active to the forgotten history, in bounded portions.

Iteration i of a loop at L runs in a branch at L with the coordinate (i + 1,). Once the loop's event
says that replay begins with a later iteration, nobody needs that branch but people.

A portion ends between two events: a large event is a head row and chunk rows, and half of it in
either place could not be read.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final, TypeAlias

from perdure.engine.database.keys import Keys
from perdure.engine.database.lease import Lease
from perdure.engine.history.location import pack_coordinate
from perdure.kv import Transaction
from perdure.kv.limits import TRANSACTION_BYTES

__all__ = ["compact", "iteration_key"]

_NESTED: Final = b"\x05"
"""Coordinates begin with this byte, so locations below the loop do, and chunks of it do not."""

_BUDGET: Final = TRANSACTION_BYTES * 8 // 10
"""Bytes of rows that one transaction moves, less what it writes otherwise."""

_PAGE: Final = 512

_Row: TypeAlias = tuple[bytes, bytes]


def iteration_key(loop_key: bytes, iteration: int) -> bytes:
    """The packed location of the branch of one iteration (counted from 0)."""
    return loop_key + pack_coordinate((iteration + 1,))


async def compact(
    tx: Transaction,
    keys: Keys,
    lease: Lease,
    loop_key: bytes,
    finished_before: int,
    retention: int,
    spent: int,
) -> bool:
    """Forget iterations below `finished_before`, oldest first. Returns whether some are left.

    `spent` is the number of bytes that the transaction writes otherwise. A transaction that writes
    nothing else always moves at least one event. Snapshot reads: the fence excludes others.
    """
    if finished_before <= 0:
        return False
    active = lease.history_key
    forgotten = keys.forgotten(lease.workflow_id)
    begin = active + loop_key + _NESTED
    end = active + iteration_key(loop_key, finished_before)
    first_kept = iteration_key(loop_key, max(finished_before - retention, 0))
    await _drop_forgotten(tx, forgotten + loop_key + _NESTED, forgotten + first_kept)
    moved = spent
    async for rows in _events(tx, begin, end):
        size = sum(2 * len(key) + len(value) for key, value in rows)
        if moved and moved + size > _BUDGET:
            return True
        moved += size
        for key, value in rows:
            tx.clear(key)
            suffix = key[len(active) :]
            if suffix >= first_kept:
                tx.set(forgotten + suffix, value)
    return False


async def _drop_forgotten(tx: Transaction, begin: bytes, end: bytes) -> None:
    """Clear what is older than the retention. Looking first spares most commits a range clear."""
    if begin < end:
        oldest = await tx.get_range(begin, end, limit=1, snapshot=True)
        if oldest:
            tx.clear_range(oldest[0][0], end)


async def _events(tx: Transaction, begin: bytes, end: bytes) -> AsyncIterator[list[_Row]]:
    """The rows of one event after the other: a head row, and the chunk rows that follow it."""
    group: list[_Row] = []
    chunk_prefix = b""
    while True:
        page = await tx.get_range(begin, end, limit=_PAGE, snapshot=True)
        for row in page:
            if group and row[0].startswith(chunk_prefix):
                group.append(row)
                continue
            if group:
                yield group
            group, chunk_prefix = [row], row[0] + b"\x00"
        if len(page) < _PAGE:
            break
        begin = page[-1][0] + b"\x00"
    if group:
        yield group
