"""The RocksDB driver: ownership, restarts, snapshots and failures."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from perdure.kv import Database, open_database, open_readonly
from perdure.kv.errors import (
    CommitUnknown,
    StoreClosed,
    StoreFailed,
    StoreInUse,
    StoreReadOnly,
    TransactionConflict,
)
from perdure.kv.rocksdb import RocksDriver

EVERYTHING = (b"", b"\xff")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
async def db(path: Path) -> AsyncIterator[Database]:
    database = await open_database(str(path))
    yield database
    await database.close()


async def put(db: Database, **rows: bytes) -> None:
    tx = db.transaction("put")
    for key, value in rows.items():
        tx.set(key.encode(), value)
    await tx.commit()


async def test_a_second_opener_hears_who_is_in_the_way(db: Database, path: Path) -> None:
    with pytest.raises(StoreInUse) as caught:
        await open_database(f"rocksdb:{path}")
    assert caught.value.path == str(path)
    assert f"process {os.getpid()}: " in caught.value.holder
    assert "pytest" in caught.value.holder
    await put(db, a=b"1")


async def test_another_process_hears_it_too(db: Database, path: Path) -> None:
    script = (
        "import asyncio, sys; from perdure.kv import open_database\n"
        "try: asyncio.run(open_database(sys.argv[1]))\n"
        "except Exception as error: print(error.code, error)\n"
    )
    run = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", script, str(path)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.startswith(f"kv.store_in_use store {path} is in use by process")


async def test_the_store_is_free_after_close_even_with_open_transactions(path: Path) -> None:
    db = await open_database(str(path))
    assert db.path == path
    await put(db, a=b"1")
    tx = db.transaction()
    assert await tx.get_range(*EVERYTHING) == [(b"a", b"1")]
    await db.close()
    await db.close()
    again = await open_database(str(path))
    assert await again.transaction().get(b"a") == b"1"
    with pytest.raises(StoreClosed):
        await tx.get(b"a")
    with pytest.raises(StoreClosed):
        await tx.get_range(*EVERYTHING)
    with pytest.raises(StoreClosed):
        db.transaction()
    await again.close()


async def test_versions_and_stamps_grow_across_restarts(path: Path) -> None:
    stamps = []
    for _ in range(3):
        db = await open_database(str(path))
        for _ in range(2):
            tx = db.transaction()
            tx.set_versionstamped(b"q", b"", b"")
            await tx.commit()
            stamps.append(tx.versionstamp)
        await db.close()
    assert stamps == sorted(set(stamps))


async def test_a_snapshot_never_moves(db: Database) -> None:
    await put(db, a=b"1", c=b"1", e=b"1")
    tx = db.transaction()
    before = [(b"a", b"1"), (b"c", b"1"), (b"e", b"1")]
    assert await tx.get(b"a") == b"1"
    other = db.transaction()
    other.set(b"a", b"2")
    other.set(b"b", b"2")
    other.clear(b"c")
    other.clear_range(b"d", b"f")
    await other.commit()
    assert await tx.get_range(*EVERYTHING) == before
    assert await tx.get_range(*EVERYTHING, reverse=True) == before[::-1]
    assert await tx.get_range(b"b", b"e") == [(b"c", b"1")]
    assert await tx.get_range(b"b", b"e", reverse=True, limit=1) == [(b"c", b"1")]
    assert [await tx.get(key) for key in (b"a", b"b", b"c", b"e")] == [b"1", None, b"1", b"1"]
    assert await db.transaction().get_range(*EVERYTHING) == [(b"a", b"2"), (b"b", b"2")]


async def test_adds_of_one_batch_add_up(db: Database) -> None:
    def number(value: int) -> bytes:
        return value.to_bytes(8, "little")

    await put(db, n=number(100))
    transactions = [db.transaction() for _ in range(5)]
    for tx in transactions:
        tx.add(b"n", 1)
    transactions[2].clear_range(b"n", b"o")
    transactions[2].add(b"n", 10)
    transactions[3].set(b"other", b"")
    await asyncio.gather(*(tx.commit() for tx in transactions))
    assert await db.transaction().get(b"n") == number(12)


@pytest.mark.parametrize("count", [3, 1000])
async def test_clearing_a_range_includes_what_the_same_batch_wrote(
    db: Database, count: int
) -> None:
    await put(db, **{f"k{number:04}": b"old" for number in range(count)}, z=b"kept")
    first, second, third = (db.transaction() for _ in range(3))
    first.set(b"kx", b"in the same batch")
    second.clear_range(b"k", b"l")
    third.set(b"ky", b"after it")
    await asyncio.gather(first.commit(), second.commit(), third.commit())
    assert await db.transaction().get_range(*EVERYTHING) == [(b"ky", b"after it"), (b"z", b"kept")]


async def test_tools_can_read_while_the_owner_writes(db: Database, path: Path) -> None:
    await put(db, a=b"1")
    view = await open_readonly(str(path))
    await put(db, a=b"2")
    tx = view.transaction()
    assert await tx.get(b"a") == b"1"
    assert await tx.get_range(*EVERYTHING) == [(b"a", b"1")]
    tx.set(b"b", b"")
    with pytest.raises(StoreReadOnly, match=str(path)):
        await tx.commit()
    await view.close()


async def test_a_readonly_view_of_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreFailed, match="nowhere"):
        await open_readonly(str(tmp_path / "nowhere"))
    assert not (tmp_path / "nowhere").exists()


@pytest.fixture
def damaged(path: Path) -> Path:
    path.mkdir()
    (path / "rocksdb").write_text("not a folder")
    return path


async def test_a_store_that_cannot_be_opened_is_not_owned(damaged: Path) -> None:
    with pytest.raises(StoreFailed, match=str(damaged)):
        await open_database(str(damaged))
    await asyncio.to_thread((damaged / "rocksdb").unlink)
    db = await open_database(str(damaged))
    await db.close()


class _FailingFlush:
    """Stands for the database when the disk is full."""

    def __init__(self, database: object) -> None:
        self._database = database

    def __getattr__(self, name: str) -> object:
        return getattr(self._database, name)

    def flush_wal(self, sync: bool) -> None:
        raise OSError("no space left on device")


async def test_a_failed_flush_poisons_the_store(db: Database, path: Path) -> None:
    await put(db, a=b"1")
    driver = db.driver
    assert isinstance(driver, RocksDriver)
    driver._db = _FailingFlush(driver._db)  # type: ignore[assignment]
    with pytest.raises(CommitUnknown, match="no space left"):
        await put(db, a=b"2")
    for _ in range(2):
        with pytest.raises(StoreFailed, match="no space left") as caught:
            await put(db, a=b"3")
        assert caught.value.path == str(path)
    assert await db.transaction().get(b"a") == b"1"


async def test_what_was_refused_leaves_no_trace(db: Database) -> None:
    await put(db, a=b"1")
    first, second = db.transaction("first"), db.transaction("second")
    for tx in (first, second):
        await tx.get(b"a")
        tx.set(b"a", tx.name.encode())
        tx.set(tx.name.encode(), b"")
    outcomes = await asyncio.gather(first.commit(), second.commit(), return_exceptions=True)
    assert isinstance(outcomes[1], TransactionConflict)
    assert await db.transaction().get_range(*EVERYTHING) == [(b"a", b"first"), (b"first", b"")]


async def test_commits_are_durable_when_the_process_is_killed(path: Path) -> None:
    script = (
        "import asyncio, os, sys; from perdure.kv import open_database\n"
        "async def main():\n"
        "    db = await open_database(sys.argv[1])\n"
        "    tx = db.transaction(); tx.set(b'a', b'1'); await tx.commit()\n"
        "    os._exit(9)\n"
        "asyncio.run(main())\n"
    )
    run = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", script, str(path)], check=False
    )
    assert run.returncode == 9
    db = await open_database(str(path))
    assert await db.transaction().get(b"a") == b"1"
    await db.close()
