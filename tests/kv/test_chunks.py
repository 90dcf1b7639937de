"""Values of any size."""

from __future__ import annotations

import pytest

from perdure.kv import Database
from perdure.kv.chunks import (
    CHUNK,
    clear_value,
    join_rows,
    read_value,
    replace_value,
    write_value,
)
from perdure.kv.errors import CorruptValue
from perdure.kv.memory import MemoryDriver

SIZES = [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, 2 * CHUNK + 1, 20 * CHUNK + 7]


def value_of(size: int) -> bytes:
    return (b"0123456789abcdef" * (size // 16 + 1))[:size]


@pytest.fixture
def db() -> Database:
    return Database(MemoryDriver())


async def rows_of(db: Database) -> list[tuple[bytes, bytes]]:
    return await db.transaction().get_range(b"", b"\xff")


@pytest.mark.parametrize("size", SIZES)
async def test_a_value_comes_back(db: Database, size: int) -> None:
    tx = db.transaction()
    write_value(tx, b"k", value_of(size))
    assert await read_value(tx, b"k") == value_of(size)
    await tx.commit()
    assert await read_value(db.transaction(), b"k") == value_of(size)


async def test_a_missing_value_is_none(db: Database) -> None:
    assert await read_value(db.transaction(), b"k") is None


async def test_a_small_value_is_one_row(db: Database) -> None:
    tx = db.transaction()
    write_value(tx, b"k", value_of(CHUNK))
    await tx.commit()
    assert await rows_of(db) == [(b"k", b"\0" + value_of(CHUNK))]


@pytest.mark.parametrize("first", SIZES)
@pytest.mark.parametrize("second", SIZES)
async def test_rewriting_leaves_nothing_of_the_old_value(
    db: Database, first: int, second: int
) -> None:
    for size in (first, second):
        tx = db.transaction()
        write_value(tx, b"k", value_of(size))
        await tx.commit()
    assert await read_value(db.transaction(), b"k") == value_of(second)
    assert len(await rows_of(db)) == (1 if second <= CHUNK else 1 + -(-second // CHUNK))


@pytest.mark.parametrize("size", SIZES)
async def test_clearing_leaves_nothing(db: Database, size: int) -> None:
    tx = db.transaction()
    write_value(tx, b"k", value_of(size), fresh=True)
    await tx.commit()
    tx = db.transaction()
    clear_value(tx, b"k")
    assert await read_value(tx, b"k") is None
    await tx.commit()
    assert await rows_of(db) == []


async def test_a_range_scan_meets_whole_values(db: Database) -> None:
    values = {b"k\x15%02x" % number: value_of(size) for number, size in enumerate(SIZES)}
    tx = db.transaction()
    for key, value in values.items():
        write_value(tx, key, value, fresh=True)
    assert dict(join_rows(await tx.get_range(b"k", b"l"))) == values
    await tx.commit()
    assert dict(join_rows(await rows_of(db))) == values


@pytest.mark.parametrize("missing", [1, 2, 3])
async def test_a_missing_chunk_is_found(db: Database, missing: int) -> None:
    tx = db.transaction()
    write_value(tx, b"k", value_of(2 * CHUNK + 1))
    rows = await tx.get_range(b"", b"\xff")
    tx.clear(rows[missing][0])
    with pytest.raises(CorruptValue, match=r"b'k'.*chunk"):
        await read_value(tx, b"k")
    with pytest.raises(CorruptValue, match=r"b'k'.*chunk"):
        list(join_rows(await tx.get_range(b"", b"\xff")))


@pytest.mark.parametrize("old", [None, 0, CHUNK, CHUNK + 1, 3 * CHUNK])
@pytest.mark.parametrize("new", [0, CHUNK + 1, 2 * CHUNK + 1])
async def test_a_replaced_value_leaves_nothing_behind(
    db: Database, old: int | None, new: int
) -> None:
    tx = db.transaction()
    if old is not None:
        write_value(tx, b"k", value_of(old))
    await tx.commit()
    tx = db.transaction()
    await replace_value(tx, b"k", value_of(new))
    await tx.commit()
    rows = await db.transaction().get_range(b"", b"\xff")
    assert list(join_rows(rows)) == [(b"k", value_of(new))]


async def test_a_left_over_chunk_is_found(db: Database) -> None:
    tx = db.transaction()
    write_value(tx, b"k", value_of(2 * CHUNK))
    tx.set(b"k\0" + (2).to_bytes(4, "big"), b"x")
    with pytest.raises(CorruptValue, match="more than"):
        await read_value(tx, b"k")


async def test_a_chunk_of_the_wrong_length_is_found(db: Database) -> None:
    tx = db.transaction()
    write_value(tx, b"k", value_of(2 * CHUNK))
    tx.set(b"k\0" + (1).to_bytes(4, "big"), b"x")
    with pytest.raises(CorruptValue, match="bytes long"):
        await read_value(tx, b"k")


async def test_a_foreign_row_is_found(db: Database) -> None:
    tx = db.transaction()
    tx.set(b"k", b"\x07hello")
    tx.set(b"empty", b"")
    with pytest.raises(CorruptValue, match="head"):
        await read_value(tx, b"k")
    with pytest.raises(CorruptValue, match="head"):
        await read_value(tx, b"empty")


async def test_a_snapshot_read_adds_no_conflict(db: Database) -> None:
    tx = db.transaction()
    write_value(tx, b"k", value_of(3 * CHUNK))
    await tx.commit()
    reader = db.transaction("reader")
    await read_value(reader, b"k", snapshot=True)
    reader.set(b"other", b"")
    writer = db.transaction("writer")
    write_value(writer, b"k", b"new")
    await writer.commit()
    await reader.commit()
