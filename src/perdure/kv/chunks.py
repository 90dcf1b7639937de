"""Values of any size, as rows that fit the limits of the store.

Nearly all values are small, so a value up to `CHUNK` bytes is exactly one row: 00 and the value. A
larger one is a head row, 01 and the number of chunks (4 bytes) and the total length (8 bytes), and
then its chunks at key + 00 + index (4 bytes); all numbers are big-endian.

Because 00 sorts before everything a packed tuple can continue with (except None), the chunks follow
their head directly, before any other key below it: a range scan over many values meets each value
whole, and `join_rows` puts it together. So a tuple that continues a key used here must not continue
it with None.

A set of chunks that does not fit its head raises `CorruptValue`; nothing is ever guessed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Final

from perdure.kv.errors import CorruptValue
from perdure.kv.transaction import Transaction

__all__ = [
    "CHUNK",
    "clear_value",
    "is_chunked",
    "join_rows",
    "read_value",
    "replace_value",
    "write_value",
]

CHUNK: Final = 50_000

_SMALL: Final = b"\x00"
_LARGE: Final = b"\x01"
_HEAD: Final = struct.Struct(">cIQ")
_INDEX: Final = struct.Struct(">I")
_CHUNKS_END: Final = b"\x00\xff\xff\xff\xff\xff"


async def read_value(tx: Transaction, key: bytes, *, snapshot: bool = False) -> bytes | None:
    """The value written at `key`, or None. Raises `CorruptValue`."""
    head = await tx.get(key, snapshot=snapshot)
    if head is None:
        return None
    if head[:1] == _SMALL:
        return head[1:]
    rows = await tx.get_range(key + b"\x00", key + _CHUNKS_END, snapshot=snapshot)
    return _join(key, head, iter(rows))


def write_value(tx: Transaction, key: bytes, value: bytes, *, fresh: bool = False) -> None:
    """Write `value` of any size at `key`, in place of what is there.

    `fresh` promises that no large value is there, which saves clearing its chunks.
    """
    if not fresh:
        tx.clear_range(key + b"\x00", key + _CHUNKS_END)
    if len(value) <= CHUNK:
        tx.set(key, _SMALL + value)
        return
    chunks = [value[start : start + CHUNK] for start in range(0, len(value), CHUNK)]
    tx.set(key, _HEAD.pack(_LARGE, len(chunks), len(value)))
    for index, chunk in enumerate(chunks):
        tx.set(_chunk_key(key, index), chunk)


async def replace_value(tx: Transaction, key: bytes, value: bytes) -> None:
    """Write `value` where there may be one, which nobody else writes at the same time.

    Looking first (a snapshot read: whoever calls this keeps other writers away) is cheaper for
    everybody than clearing the range of chunks blindly: most values never had any, and a store that
    keeps tombstones for ranges pays for each with every later read.
    """
    if is_chunked(await tx.get(key, snapshot=True)):
        clear_value(tx, key)
    write_value(tx, key, value, fresh=True)


def is_chunked(row: bytes | None) -> bool:
    """Whether the row at the key of a value says that chunk rows follow it."""
    return row is not None and row[:1] == _LARGE


def clear_value(tx: Transaction, key: bytes) -> None:
    """Remove the value at `key`, whatever its size."""
    tx.clear(key)
    tx.clear_range(key + b"\x00", key + _CHUNKS_END)


def join_rows(rows: Iterable[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
    """The (key, whole value) pairs of the rows of a forward range read that ends between values.

    Raises `CorruptValue` if chunks are missing, left over or out of order.
    """
    remaining = iter(rows)
    for key, head in remaining:
        if head[:1] == _SMALL:
            yield key, head[1:]
        else:
            yield key, _join(key, head, remaining, exactly=False)


def _join(
    key: bytes, head: bytes, rows: Iterator[tuple[bytes, bytes]], *, exactly: bool = True
) -> bytes:
    """The value of a large head from the rows after it; `exactly` if no others may follow."""
    if len(head) != _HEAD.size or head[:1] != _LARGE:
        raise CorruptValue(key, f"its head is {head[:20]!r}")
    _, count, length = _HEAD.unpack(head)
    chunks = []
    for index in range(count):
        chunk_key, chunk = next(rows, (b"", b""))
        if chunk_key != _chunk_key(key, index):
            raise CorruptValue(key, f"chunk {index} of {count} is missing")
        chunks.append(chunk)
    if exactly and next(rows, None) is not None:
        raise CorruptValue(key, f"it has more than its {count} chunks")
    value = b"".join(chunks)
    if len(value) != length:
        raise CorruptValue(key, f"it is {len(value):,} bytes long, not {length:,}")
    return value


def _chunk_key(key: bytes, index: int) -> bytes:
    return key + b"\x00" + _INDEX.pack(index)
