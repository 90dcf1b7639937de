"""Two transactions, interleaved by hand: the classic anomalies, and what must not be refused."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from perdure.kv import Database, Transaction
from perdure.kv.errors import TransactionConflict, VersionstampUnknown
from perdure.kv.memory import MemoryDriver
from perdure.kv.rocksdb import RocksDriver
from perdure.testing.store import Store

ROWS = [(b"row/%d" % number, b"%d" % number) for number in range(10)]


def number(value: bytes | None) -> int:
    return int.from_bytes(value or b"", "little", signed=True)


async def put(database: Database, *rows: tuple[bytes, bytes]) -> None:
    transaction = database.transaction("put")
    for key, value in rows:
        transaction.set(key, value)
    await transaction.commit()


async def content(database: Database) -> list[tuple[bytes, bytes]]:
    return await database.transaction("content").get_range(b"", b"\xff")


@pytest.fixture
async def database(store: Store) -> Database:
    await put(store.database, *ROWS)
    return store.database


async def test_a_lost_update_is_refused(database: Database) -> None:
    one, other = database.transaction("one"), database.transaction("other")
    for transaction in (one, other):
        value = await transaction.get(b"row/1")
        assert value is not None
        transaction.set(b"row/1", value + b"+")
    await one.commit()
    with pytest.raises(TransactionConflict, match="other"):
        await other.commit()
    assert await database.transaction().get(b"row/1") == b"1+"


async def test_a_lost_update_is_refused_within_one_batch(database: Database) -> None:
    transactions = [database.transaction(f"rival {index}") for index in range(5)]
    for transaction in transactions:
        await transaction.get(b"row/1")
        transaction.set(b"row/1", transaction.name.encode())
    outcomes = await asyncio.gather(
        *(transaction.commit() for transaction in transactions), return_exceptions=True
    )
    assert [type(outcome) for outcome in outcomes] == [int] + [TransactionConflict] * 4
    assert await database.transaction().get(b"row/1") == b"rival 0"


async def test_write_skew_is_refused(database: Database) -> None:
    one, other = database.transaction(), database.transaction()
    for transaction in (one, other):
        await transaction.get(b"row/1")
        await transaction.get(b"row/2")
    one.set(b"row/1", b"")
    other.set(b"row/2", b"")
    await one.commit()
    with pytest.raises(TransactionConflict):
        await other.commit()


Write = Callable[[Transaction], None]


@pytest.mark.parametrize(
    "write",
    [
        lambda tx: tx.set(b"row/50", b"phantom"),
        lambda tx: tx.clear(b"row/5"),
        lambda tx: tx.clear_range(b"row/", b"row/31"),
        lambda tx: tx.clear_range(b"row/6", b"z"),
        lambda tx: tx.add(b"row/44", 1),
        lambda tx: tx.set_versionstamped(b"row/4", b"", b""),
        lambda tx: tx.add_write_conflict(b"row/4"),
        lambda tx: tx.add_write_conflict_range(b"row/55", b"row/6"),
    ],
)
async def test_what_appears_or_goes_in_a_range_that_was_read_refuses(
    database: Database, write: Write
) -> None:
    reader, writer = database.transaction(), database.transaction()
    await reader.get_range(b"row/3", b"row/7")
    reader.set(b"seen", b"")
    write(writer)
    await writer.commit()
    with pytest.raises(TransactionConflict):
        await reader.commit()


@pytest.mark.parametrize(
    "write",
    [
        lambda tx: tx.set(b"row/7", b"just behind"),
        lambda tx: tx.set(b"row/2\xff", b"just before"),
        lambda tx: tx.clear_range(b"", b"row/3"),
        lambda tx: tx.clear_range(b"row/7", b"\xff"),
        lambda tx: tx.set_versionstamped(b"row/7", b"", b""),
        lambda tx: tx.clear_range(b"row/5", b"row/5"),
    ],
)
async def test_what_happens_beside_a_range_does_not_matter(
    database: Database, write: Write
) -> None:
    reader, writer = database.transaction(), database.transaction()
    await reader.get_range(b"row/3", b"row/7")
    reader.set(b"seen", b"")
    write(writer)
    await writer.commit()
    await reader.commit()


@pytest.mark.parametrize(
    ("reverse", "limit", "key", "refused"),
    [
        (False, 3, b"row/2", True),
        (False, 3, b"row/", True),
        (False, 3, b"row/1x", True),
        (False, 3, b"row/2\x00", False),
        (False, 3, b"row/9", False),
        (True, 3, b"row/7", True),
        (True, 3, b"row/9x", True),
        (True, 3, b"row/6\xff", False),
        (True, 3, b"row/1", False),
        (False, 10, b"row/9x", False),
        (False, 11, b"row/9x", True),
        (True, 11, b"row/", True),
    ],
)
async def test_a_limited_read_depends_only_on_what_it_returned(
    database: Database, reverse: bool, limit: int, key: bytes, refused: bool
) -> None:
    reader = database.transaction()
    rows = await reader.get_range(b"row/", b"row/\xff", limit=limit, reverse=reverse)
    assert rows == (ROWS[::-1] if reverse else ROWS)[:limit]
    reader.set(b"seen", b"")
    await put(database, (key, b"new"))
    if refused:
        with pytest.raises(TransactionConflict):
            await reader.commit()
    else:
        await reader.commit()


async def test_own_writes_do_not_shrink_what_a_limited_read_depends_on(database: Database) -> None:
    reader = database.transaction()
    reader.clear_range(b"row/0", b"row/4")
    reader.set(b"row/5x", b"mine")
    rows = await reader.get_range(b"row/", b"row/\xff", limit=3)
    assert [key for key, _ in rows] == [b"row/4", b"row/5", b"row/5x"]
    await put(database, (b"row/4x", b"in between"))
    with pytest.raises(TransactionConflict):
        await reader.commit()


async def test_a_snapshot_read_depends_on_nothing(database: Database) -> None:
    reader = database.transaction()
    await reader.get(b"row/1", snapshot=True)
    await reader.get_range(b"row/", b"row/\xff", snapshot=True)
    reader.set(b"seen", b"")
    await put(database, (b"row/1", b"new"), (b"row/1x", b"new"))
    await reader.commit()


@pytest.mark.parametrize(
    "depend",
    [
        lambda tx: tx.add_read_conflict(b"row/1"),
        lambda tx: tx.add_read_conflict_range(b"row/0", b"row/2"),
    ],
)
async def test_a_snapshot_read_can_be_made_to_count(database: Database, depend: Write) -> None:
    reader = database.transaction()
    await reader.get(b"row/1", snapshot=True)
    depend(reader)
    reader.set(b"seen", b"")
    await put(database, (b"row/1", b"new"))
    with pytest.raises(TransactionConflict):
        await reader.commit()


async def test_blind_writes_never_conflict_and_the_last_commit_wins(database: Database) -> None:
    transactions = [database.transaction() for _ in range(4)]
    for index, transaction in enumerate(transactions):
        transaction.set(b"row/1", b"blind %d" % index)
        transaction.clear_range(b"row/2", b"row/9")
    for index in (2, 0, 3, 1):
        await transactions[index].commit()
    assert await database.transaction().get(b"row/1") == b"blind 1"


async def test_reading_what_one_wrote_oneself_depends_on_nothing(database: Database) -> None:
    one = database.transaction()
    one.set(b"row/1", b"mine")
    one.clear_range(b"row/3", b"row/5")
    assert await one.get(b"row/1") == b"mine"
    assert await one.get(b"row/4") is None
    await put(database, (b"row/1", b"other"), (b"row/4", b"other"))
    await one.commit()
    assert await database.transaction().get(b"row/1") == b"mine"
    assert await database.transaction().get(b"row/4") is None


async def test_concurrent_adds_are_neither_refused_nor_lost(database: Database) -> None:
    async def add(delta: int) -> None:
        transaction = database.transaction("add")
        transaction.add(b"counter", delta)
        await asyncio.sleep(0)
        await transaction.commit()

    await asyncio.gather(*(add(delta) for delta in range(-20, 101)))
    assert number(await database.transaction().get(b"counter")) == sum(range(-20, 101))


async def test_adds_meet_sets_and_clears_of_the_same_batch_in_order(database: Database) -> None:
    transactions = [database.transaction() for _ in range(6)]
    transactions[0].add(b"counter", 5)
    transactions[1].set(b"counter", (100).to_bytes(8, "little"))
    transactions[2].add(b"counter", 7)
    transactions[3].clear_range(b"count", b"county")
    transactions[4].add(b"counter", 3)
    transactions[4].add(b"other", -1)
    transactions[5].add(b"counter", -1)
    await asyncio.gather(*(transaction.commit() for transaction in transactions))
    assert number(await database.transaction().get(b"counter")) == 2
    assert number(await database.transaction().get(b"other")) == -1


async def test_an_add_refuses_who_read_the_number(database: Database) -> None:
    reader, adder = database.transaction(), database.transaction()
    await reader.get(b"counter")
    reader.set(b"seen", b"")
    adder.add(b"counter", 1)
    await adder.commit()
    with pytest.raises(TransactionConflict):
        await reader.commit()


async def test_reading_a_number_one_added_to_depends_on_it(database: Database) -> None:
    one, other = database.transaction(), database.transaction()
    one.add(b"counter", 1)
    assert number(await one.get(b"counter")) == 1
    other.add(b"counter", 5)
    await other.commit()
    assert number(await one.get(b"counter")) == 1
    with pytest.raises(TransactionConflict):
        await one.commit()


async def test_one_transaction_never_sees_two_states(database: Database) -> None:
    reader = database.transaction()
    before = await reader.get(b"row/1")
    for round_number in range(50):
        value = b"round %d" % round_number
        await put(database, (b"row/1", value), (b"row/2", value), (b"row/2%d" % round_number, b""))
        if round_number % 10 == 0:
            remover = database.transaction()
            remover.clear_range(b"row/5", b"row/8")
            await remover.commit()
    assert (before, await reader.get(b"row/2")) == (b"1", b"2")
    assert await reader.get_range(b"", b"\xff") == ROWS
    assert await reader.get_range(b"", b"\xff", reverse=True, snapshot=True) == ROWS[::-1]
    assert [row async for row in reader.scan(b"", b"\xff", page=3)] == ROWS


async def test_who_only_reads_is_never_refused(database: Database) -> None:
    reader = database.transaction()
    await reader.get_range(b"", b"\xff")
    await put(database, (b"row/1", b"new"))
    assert await reader.commit() == reader.read_version


async def test_a_refused_transaction_leaves_no_trace(database: Database) -> None:
    one = database.transaction()
    await one.get(b"row/1")
    one.set(b"trace/set", b"")
    one.add(b"trace/add", 1)
    one.set_versionstamped(b"trace/", b"", b"")
    one.clear_range(b"row/", b"row/\xff")
    await put(database, (b"row/1", b"new"))
    with pytest.raises(TransactionConflict):
        await one.commit()
    with pytest.raises(VersionstampUnknown):
        _ = one.versionstamp
    assert await content(database) == [ROWS[0], (b"row/1", b"new"), *ROWS[2:]]


async def test_a_refused_transaction_refuses_nobody(database: Database) -> None:
    refused, bystander = database.transaction(), database.transaction()
    await refused.get(b"row/1")
    refused.set(b"row/2", b"never")
    await bystander.get(b"row/2")
    bystander.set(b"seen", b"")
    await put(database, (b"row/1", b"new"))
    outcomes = await asyncio.gather(refused.commit(), bystander.commit(), return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [TransactionConflict, int]


async def test_versionstamps_follow_the_commits_across_restarts(store: Store) -> None:
    stamps: list[bytes] = []
    for life in range(3):
        for round_number in range(3):
            transactions = [store.database.transaction() for _ in range(4)]
            for index, transaction in enumerate(transactions):
                value = b"%d.%d.%d" % (life, round_number, index)
                transaction.set_versionstamped(b"log/", b"/end", value)
                transaction.set_versionstamped(b"copy/", b"", value)
            await asyncio.gather(*(transaction.commit() for transaction in transactions))
            stamps += [transaction.versionstamp for transaction in transactions]
        await store.reopen()
    assert {len(stamp) for stamp in stamps} == {10}
    assert stamps == sorted(set(stamps))
    reader = store.database.transaction()
    logged = await reader.get_range(b"log/", b"log0")
    assert [key for key, _ in logged] == [b"log/" + stamp + b"/end" for stamp in stamps]
    values = [b"%d.%d.%d" % (a, b, c) for a in range(3) for b in range(3) for c in range(4)]
    assert [value for _, value in logged] == values
    copied = await reader.get_range(b"copy/", b"copy0")
    assert copied == [
        (b"copy/" + stamp, value) for stamp, value in zip(stamps, values, strict=True)
    ]


async def test_versions_grow_across_restarts(store: Store) -> None:
    versions = []
    for life in range(3):
        for _ in range(2):
            await put(store.database, (b"key", b"%d" % life))
            versions.append(store.database.transaction().read_version)
        await store.reopen()
        assert store.database.transaction().read_version >= versions[-1]
    assert versions == sorted(set(versions))


async def test_a_transaction_of_before_a_restart_writes_nothing(store: Store) -> None:
    zombie = store.database.transaction()
    zombie.set(b"key", b"zombie")
    await store.reopen()
    with pytest.raises(BaseException) as caught:  # noqa: PT011 - the drivers differ in how
        await zombie.commit()
    assert not isinstance(caught.value, TransactionConflict)
    assert await store.database.transaction().get(b"key") is None


async def test_cancelling_who_waits_does_not_cancel_the_commit(database: Database) -> None:
    one = database.transaction()
    one.set(b"key", b"value")
    waiting = asyncio.ensure_future(one.commit())
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await put(database, (b"later", b""))
    assert await database.transaction().get(b"key") == b"value"


class HeldFlush:
    """A RocksDB handle whose flush waits for the test."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.reached = threading.Event()
        self.release = threading.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def flush_wal(self, sync: bool) -> None:
        self.reached.set()
        assert self.release.wait(30)
        self.inner.flush_wal(sync)


async def test_nothing_is_readable_before_it_is_durable(database: Database) -> None:
    """And who starts in between is refused if it matters to him."""
    driver = database.driver
    writer = database.transaction("writer")
    writer.set(b"row/1", b"new")
    if isinstance(driver, MemoryDriver):
        gate = driver.faults.hold(name="writer", durable=True)
        writing = asyncio.ensure_future(writer.commit())
        await gate.reached()
        release = gate.open
    else:
        assert isinstance(driver, RocksDriver)
        held = HeldFlush(driver._db)
        driver._db = held  # type: ignore[assignment]
        writing = asyncio.ensure_future(writer.commit())
        await asyncio.to_thread(held.reached.wait, 30)
        release = held.release.set

    between = database.transaction("between")
    assert between.read_version == writer.read_version
    assert await between.get(b"row/1") == b"1"
    assert await between.get_range(b"row/1", b"row/2") == [(b"row/1", b"1")]
    assert not writing.done()
    between.set(b"row/1", b"lost update")
    racing = asyncio.ensure_future(between.commit())
    release()
    assert await writing > between.read_version
    with pytest.raises(TransactionConflict):
        await racing
    assert await database.transaction().get(b"row/1") == b"new"
