"""Ordered faults do what they say, at the commit they name."""

from __future__ import annotations

import asyncio

import pytest

from perdure.clock import VirtualClock
from perdure.kv import Database
from perdure.kv.errors import CommitUnknown, StoreClosed, TransactionConflict
from perdure.kv.faults import Crash
from perdure.kv.memory import MemoryDriver
from perdure.kv.transaction import Transaction


@pytest.fixture
def driver() -> MemoryDriver:
    return MemoryDriver()


@pytest.fixture
def db(driver: MemoryDriver) -> Database:
    return Database(driver)


async def put(db: Database, key: bytes, name: str = "put") -> None:
    tx = db.transaction(name)
    tx.set(key, b"1")
    await tx.commit()


async def has(db: Database, key: bytes) -> bool:
    return await db.transaction().get(key) is not None


async def test_a_conflict_by_number(driver: MemoryDriver, db: Database) -> None:
    driver.faults.conflict(commit=2)
    await put(db, b"a")
    with pytest.raises(TransactionConflict):
        await put(db, b"b")
    await put(db, b"c")
    assert [await has(db, key) for key in (b"a", b"b", b"c")] == [True, False, True]


async def test_conflicts_by_name_hit_that_often(driver: MemoryDriver, db: Database) -> None:
    driver.faults.conflict(name="target", times=2)
    await put(db, b"a", "other")
    attempts = 0

    async def body(tx: Transaction) -> None:
        nonlocal attempts
        attempts += 1
        tx.set(b"b", b"1")

    await db.run(body, name="target")
    assert attempts == 3


@pytest.mark.parametrize("applied", [True, False])
async def test_an_unknown_outcome(driver: MemoryDriver, db: Database, applied: bool) -> None:
    driver.faults.unknown(applied=applied, commit=1)
    with pytest.raises(CommitUnknown):
        await put(db, b"a")
    assert await has(db, b"a") is applied


@pytest.mark.parametrize("durable", [True, False])
async def test_a_crash_kills_the_store_but_not_what_is_durable(
    driver: MemoryDriver, db: Database, durable: bool
) -> None:
    await put(db, b"a")
    open_before = db.transaction()
    driver.faults.crash(commit=2, durable=durable)
    with pytest.raises(Crash):
        await put(db, b"b")
    with pytest.raises(Crash):
        await open_before.get(b"a")
    with pytest.raises(Crash):
        db.transaction()
    open_before.set(b"x", b"")
    with pytest.raises(Crash):
        await open_before.commit()
    again = Database(driver.reopen())
    assert await has(again, b"a")
    assert await has(again, b"b") is durable
    await put(again, b"c")


async def test_every_member_of_a_batch_and_the_queue_behind_it_hears_of_a_crash(
    driver: MemoryDriver, db: Database
) -> None:
    driver.faults.crash(name="second")
    outcomes = await asyncio.gather(
        *(put(db, name.encode(), name) for name in ("first", "second", "third")),
        return_exceptions=True,
    )
    assert [type(outcome) for outcome in outcomes] == [Crash] * 3
    again = Database(driver.reopen())
    assert [await has(again, key) for key in (b"first", b"second", b"third")] == [
        True,
        False,
        False,
    ]


async def test_versions_grow_across_a_restart(driver: MemoryDriver, db: Database) -> None:
    tx = db.transaction()
    tx.set_versionstamped(b"q", b"", b"")
    await tx.commit()
    again = Database(driver.reopen())
    later = again.transaction()
    later.set_versionstamped(b"q", b"", b"")
    await later.commit()
    assert later.versionstamp > tx.versionstamp


async def test_nothing_is_readable_before_it_is_durable(driver: MemoryDriver, db: Database) -> None:
    gate = driver.faults.hold(commit=1, durable=True)
    writing = asyncio.create_task(put(db, b"a"))
    await gate.reached()
    before = db.transaction("before")
    assert await before.get(b"a") is None
    gate.open()
    await writing
    assert await has(db, b"a")
    # It read the old state, so it must not be able to act on it.
    before.set(b"b", b"")
    with pytest.raises(TransactionConflict):
        await before.commit()


async def test_a_held_commit_can_be_overtaken_by_nobody(driver: MemoryDriver, db: Database) -> None:
    gate = driver.faults.hold(name="slow")
    slow = asyncio.create_task(put(db, b"a", "slow"))
    await gate.reached()
    fast = asyncio.create_task(put(db, b"b", "fast"))
    for _ in range(10):
        await asyncio.sleep(0)
    assert not fast.done()
    gate.open()
    await asyncio.gather(slow, fast)


async def test_cancelling_the_waiter_does_not_cancel_the_commit(
    driver: MemoryDriver, db: Database
) -> None:
    gate = driver.faults.hold(commit=1)
    writing = asyncio.create_task(put(db, b"a"))
    await gate.reached()
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    gate.open()
    await db.close()
    assert await has(Database(driver.reopen()), b"a")


async def test_a_delay_takes_time_of_the_clock() -> None:
    clock = VirtualClock()
    driver = MemoryDriver(clock=clock)
    db = Database(driver, clock=clock)
    driver.faults.delay(0.5, commit=1)
    writing = asyncio.create_task(put(db, b"a"))
    await clock.advance_async(499)
    assert not writing.done()
    await clock.advance_async(1)
    await writing


async def test_an_old_snapshot_stays_readable_while_versions_pile_up(db: Database) -> None:
    await put(db, b"a")
    old = db.transaction()
    for number in range(50):
        tx = db.transaction()
        if number % 2:
            tx.set(b"a", b"%d" % number)
        else:
            tx.clear_range(b"", b"\xff")
        await tx.commit()
    assert await old.get_range(b"", b"\xff") == [(b"a", b"1")]


async def test_states_nobody_can_see_are_dropped(driver: MemoryDriver, db: Database) -> None:
    for number in range(100):
        tx = db.transaction()
        tx.set(b"a", b"%d" % number)
        tx.set(b"gone%d" % number, b"")
        tx.clear(b"gone%d" % (number - 1))
        await tx.commit()
    del tx
    await put(db, b"z")
    assert set(driver.rows()) == {b"a", b"gone99", b"z"}
    assert driver.rows()[b"a"][2] is None


async def test_a_closed_store_says_so(driver: MemoryDriver, db: Database) -> None:
    tx = db.transaction()
    tx.set(b"a", b"")
    await db.close()
    with pytest.raises(StoreClosed):
        await tx.commit()
    with pytest.raises(StoreClosed):
        db.transaction()
