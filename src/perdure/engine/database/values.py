"""Rewriting values that may be chunked, without leaving or clearing chunks needlessly."""

from __future__ import annotations

from perdure.kv import Transaction
from perdure.kv.chunks import clear_value, write_value

__all__ = ["is_chunked", "replace_value"]


def is_chunked(row: bytes | None) -> bool:
    """Whether the head row of a value says that chunk rows follow it."""
    return row is not None and row[:1] == b"\x01"


async def replace_value(tx: Transaction, key: bytes, value: bytes) -> None:
    """Write a value where there may be one, which only the holder of a fence writes.

    Looking first (a snapshot read: the fence excludes other writers) is cheaper for everybody
    than clearing the range of chunks blindly: most values never had any, and a store that keeps
    tombstones for ranges pays for each with every later read.
    """
    if is_chunked(await tx.get(key, snapshot=True)):
        clear_value(tx, key)
    write_value(tx, key, value, fresh=True)
