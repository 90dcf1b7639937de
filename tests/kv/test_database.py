"""The retry loop, the limits, and what a transaction promises on its own."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Sequence

import pytest

from perdure.clock import VirtualClock
from perdure.errors import CallerError, LimitExceeded
from perdure.kv import Database, Transaction, open_database, transactional
from perdure.kv.driver import CommitRequest, CommitResult
from perdure.kv.errors import (
    CommitUnknown,
    InvalidRange,
    InvalidStoreUrl,
    KeyTooLarge,
    ReservedKey,
    RetriesExhausted,
    StoreFailed,
    TransactionClosed,
    TransactionConflict,
    TransactionTooLarge,
    TransactionTooOld,
    ValueTooLarge,
    VersionstampUnknown,
)
from perdure.kv.limits import KEY_BYTES, VALUE_BYTES
from perdure.kv.memory import MemoryDriver

EVERYTHING = (b"", b"\xff")


class Observer:
    def __init__(self) -> None:
        self.seen: list[tuple[str, int, str]] = []

    def transaction(self, name: str, seconds: float, attempts: int, outcome: str) -> None:
        assert seconds >= 0
        self.seen.append((name, attempts, outcome))


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def driver(clock: VirtualClock) -> MemoryDriver:
    return MemoryDriver(clock=clock)


@pytest.fixture
def db(driver: MemoryDriver, clock: VirtualClock) -> Database:
    return Database(driver, clock=clock, random=random.Random(0))


async def fill(db: Database, **rows: bytes) -> None:
    tx = db.transaction("fill")
    for key, value in rows.items():
        tx.set(key.encode(), value)
    await tx.commit()


async def test_run_returns_the_result_and_commits(db: Database) -> None:
    async def body(tx: Transaction) -> int:
        tx.set(b"a", b"1")
        return 7

    assert await db.run(body, name="write") == 7
    assert await db.transaction().get(b"a") == b"1"


async def test_the_first_retry_is_immediate_and_later_ones_back_off(
    db: Database, driver: MemoryDriver, clock: VirtualClock
) -> None:
    driver.faults.conflict(name="busy", times=4)
    times: list[float] = []

    async def body(tx: Transaction) -> None:
        times.append(clock.monotonic())
        tx.set(b"a", b"")

    running = asyncio.create_task(db.run(body, name="busy"))
    await clock.advance_async(1000)
    await running
    pauses = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert pauses[0] == 0
    for pause, nominal in zip(pauses[1:], (0.010, 0.020, 0.040), strict=True):
        assert 0.5 * nominal <= pause <= 1.5 * nominal


async def test_the_backoff_stops_growing(db: Database) -> None:
    assert all(0.64 <= db._backoff(doublings) <= 1.92 for doublings in range(7, 100))


async def test_retries_run_out(db: Database, driver: MemoryDriver) -> None:
    driver.faults.conflict(name="busy", times=10)

    async def body(tx: Transaction) -> None:
        tx.set(b"a", b"")

    with pytest.raises(RetriesExhausted) as caught:
        await db.run(body, name="busy", attempts=2)
    assert (caught.value.name, caught.value.attempts) == ("busy", 2)
    assert isinstance(caught.value.last, TransactionConflict)
    assert driver.faults.commits == 2


async def test_errors_of_the_body_pass_through_and_nothing_is_written(db: Database) -> None:
    class Own(Exception):
        pass

    async def body(tx: Transaction) -> None:
        tx.set(b"a", b"")
        raise Own

    with pytest.raises(Own):
        await db.run(body, name="raises")
    assert await db.transaction().get(b"a") is None


async def test_an_unknown_outcome_is_not_repeated(db: Database, driver: MemoryDriver) -> None:
    driver.faults.unknown(applied=True, name="add")

    async def body(tx: Transaction) -> None:
        tx.add(b"n", 1)

    with pytest.raises(CommitUnknown):
        await db.run(body, name="add")
    assert await db.transaction().get(b"n") == (1).to_bytes(8, "little")


async def test_an_unknown_outcome_is_repeated_where_that_is_harmless(
    db: Database, driver: MemoryDriver
) -> None:
    driver.faults.unknown(applied=True, name="put")

    async def body(tx: Transaction) -> None:
        tx.set(b"a", b"1")

    await db.run(body, name="put", idempotent=True)
    assert driver.faults.commits == 2


async def test_observers_hear_attempts_and_outcomes(db: Database, driver: MemoryDriver) -> None:
    observer = db.observer = Observer()
    driver.faults.conflict(name="busy", times=1)

    async def write(tx: Transaction) -> None:
        tx.set(b"a", b"")

    async def fail(tx: Transaction) -> None:
        raise KeyError

    await db.run(write, name="busy")
    with pytest.raises(KeyError):
        await db.run(fail, name="fails")
    driver.faults.unknown(applied=False)
    with pytest.raises(CommitUnknown):
        await db.run(write, name="lost")
    assert observer.seen == [
        ("busy", 2, "committed"),
        ("fails", 1, "KeyError"),
        ("lost", 1, "kv.commit_unknown"),
    ]


@transactional
async def increment(tx: Transaction, key: bytes, *, by: int = 1) -> int:
    """Add in a way that can conflict."""
    number = int(await tx.get(key) or b"0") + by
    tx.set(key, b"%d" % number)
    return number


@transactional(idempotent=True)
async def put(tx: Transaction, key: bytes) -> None:
    tx.set(key, b"1")


async def test_transactional_functions_take_a_database(db: Database) -> None:
    assert await increment(db, b"n") == 1
    assert await increment(db, b"n", by=5) == 6
    assert increment.__doc__ == "Add in a way that can conflict."


async def test_transactional_functions_compose_in_a_transaction(db: Database) -> None:
    tx = db.transaction()
    await increment(tx, b"n")
    await increment(tx, b"n")
    assert await db.transaction().get(b"n") is None
    await tx.commit()
    assert await db.transaction().get(b"n") == b"2"


async def test_transactional_functions_are_named_and_retried(
    db: Database, driver: MemoryDriver
) -> None:
    driver.faults.conflict(name="increment")
    assert await increment(db, b"n") == 1
    driver.faults.unknown(applied=False, name="put")
    await put(db, b"a")
    assert await db.transaction().get(b"a") == b"1"


async def test_concurrent_read_modify_writes_lose_nothing() -> None:
    db = await open_database("memory:")
    await asyncio.gather(*(increment(db, b"n") for _ in range(20)))
    assert await db.transaction().get(b"n") == b"20"


async def test_commits_that_wait_together_share_a_batch(db: Database) -> None:
    transactions = [db.transaction() for _ in range(10)]
    for number, tx in enumerate(transactions):
        tx.set(b"%d" % number, b"")
    versions = await asyncio.gather(*(tx.commit() for tx in transactions))
    assert len(set(versions)) == 1
    stamps = [tx.versionstamp for tx in transactions]
    assert stamps == sorted(set(stamps))


async def test_a_read_only_commit_does_no_io(db: Database, driver: MemoryDriver) -> None:
    await fill(db, a=b"1")
    tx = db.transaction()
    await tx.get_range(*EVERYTHING)
    assert await tx.commit() == tx.read_version
    assert driver.faults.commits == 1
    with pytest.raises(VersionstampUnknown):
        _ = tx.versionstamp


async def test_a_transaction_ends_with_its_commit(db: Database) -> None:
    tx = db.transaction("done")
    tx.set(b"a", b"")
    await tx.commit()
    for late in (tx.get(b"a"), tx.get_range(*EVERYTHING), tx.commit()):
        with pytest.raises(TransactionClosed, match="done"):
            await late
    with pytest.raises(TransactionClosed):
        tx.set(b"b", b"")
    with pytest.raises(TransactionClosed):
        tx.clear_range(b"a", b"b")
    with pytest.raises(TransactionClosed):
        tx.add_read_conflict(b"a")


async def test_a_transaction_grows_too_old(db: Database, clock: VirtualClock) -> None:
    tx = db.transaction("slow")
    tx.set(b"a", b"")
    clock.advance(5000)
    await tx.get(b"b")
    clock.advance(1)
    for late in (tx.get(b"b"), tx.get_range(*EVERYTHING), tx.commit()):
        with pytest.raises(TransactionTooOld, match="slow"):
            await late


async def test_size_limits_are_enforced_at_the_call(db: Database) -> None:
    tx = db.transaction("large")
    tx.set(b"k" * KEY_BYTES, b"v" * VALUE_BYTES)
    for call in (tx.clear, tx.add_read_conflict, tx.add_write_conflict):
        with pytest.raises(KeyTooLarge):
            call(b"k" * (KEY_BYTES + 1))
    with pytest.raises(KeyTooLarge):
        await tx.get(b"k" * (KEY_BYTES + 1))
    with pytest.raises(KeyTooLarge):
        tx.set_versionstamped(b"k" * (KEY_BYTES - 9), b"", b"")
    with pytest.raises(ValueTooLarge) as caught:
        tx.set(b"k", b"v" * (VALUE_BYTES + 1))
    assert isinstance(caught.value, LimitExceeded)
    assert (caught.value.size, caught.value.limit) == (VALUE_BYTES + 1, VALUE_BYTES)
    for number in range(98):
        tx.set(b"%d" % number, b"v" * VALUE_BYTES)
    with pytest.raises(TransactionTooLarge, match="large"):
        tx.set(b"98", b"v" * VALUE_BYTES)


@pytest.mark.parametrize("key", [b"\xff", b"\xff/version"])
async def test_reserved_keys_are_refused(db: Database, key: bytes) -> None:
    tx = db.transaction()
    for call in (tx.clear, tx.add_read_conflict, tx.add_write_conflict):
        with pytest.raises(ReservedKey):
            call(key)
    with pytest.raises(ReservedKey):
        tx.set(key, b"")
    with pytest.raises(ReservedKey):
        await tx.get(key)
    with pytest.raises(ReservedKey):
        await tx.get_range(b"", key + b"\0")


async def test_senseless_arguments_are_refused(db: Database) -> None:
    tx = db.transaction()
    with pytest.raises(InvalidRange, match="before it begins"):
        await tx.get_range(b"b", b"a")
    with pytest.raises(InvalidRange, match="-1"):
        await tx.get_range(b"a", b"b", limit=-1)
    with pytest.raises(InvalidRange):
        tx.clear_range(b"b", b"a")
    assert await tx.get_range(b"a", b"a") == []
    with pytest.raises(TypeError, match="bytes, not str"):
        tx.set(b"a", "text")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("limit", "reverse", "seen"),
    [
        (0, False, [b"a", b"b2", b"d", b"e"]),
        (1, False, [b"a"]),
        (2, False, [b"a", b"b2"]),
        (3, False, [b"a", b"b2", b"d"]),
        (0, True, [b"e", b"d", b"b2", b"a"]),
        (2, True, [b"e", b"d"]),
        (3, True, [b"e", b"d", b"b2"]),
    ],
)
async def test_range_reads_see_local_writes(
    db: Database, limit: int, reverse: bool, seen: list[bytes]
) -> None:
    await fill(db, a=b"", b=b"", c=b"", d=b"", f=b"", g=b"")
    tx = db.transaction()
    tx.clear(b"b")
    tx.set(b"b2", b"")
    tx.clear_range(b"c", b"d")
    tx.set(b"e", b"")
    tx.set(b"f", b"")
    tx.clear_range(b"f", b"z")
    rows = await tx.get_range(b"a", b"z", limit=limit, reverse=reverse)
    assert [key for key, _ in rows] == seen


@pytest.mark.parametrize(
    ("limit", "reverse", "disturbed", "conflicts"),
    [
        (2, False, b"a", True),
        (2, False, b"c", True),
        (2, False, b"c\0", False),
        (2, False, b"d", False),
        (2, True, b"e", True),
        (2, True, b"c", True),
        (2, True, b"b", False),
        (0, False, b"y", True),
        (9, False, b"y", True),
        (9, True, b"a0", True),
    ],
)
async def test_a_limited_read_depends_only_on_what_it_returned(
    db: Database, limit: int, reverse: bool, disturbed: bytes, conflicts: bool
) -> None:
    await fill(db, a=b"", b=b"", c=b"", e=b"")
    tx = db.transaction("reader")
    tx.clear(b"b")
    await tx.get_range(b"a", b"z", limit=limit, reverse=reverse)
    tx.set(b"result", b"")
    other = db.transaction()
    other.set(disturbed, b"new")
    await other.commit()
    if conflicts:
        with pytest.raises(TransactionConflict, match="reader"):
            await tx.commit()
    else:
        await tx.commit()


async def test_a_scan_depends_only_on_the_pages_it_read(db: Database) -> None:
    await fill(db, a=b"", b=b"", c=b"", d=b"", e=b"")
    tx = db.transaction()
    async for key, _ in tx.scan(*EVERYTHING, page=2):
        if key == b"b":
            break
    tx.set(b"result", b"")
    for key in (b"b0", b"c", b"e"):
        other = db.transaction()
        other.set(key, b"new")
        await other.commit()
    await tx.commit()


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("page", [1, 2, 5, 100])
async def test_a_scan_gives_every_row_once(db: Database, page: int, reverse: bool) -> None:
    await fill(db, a=b"", b=b"", c=b"", d=b"", e=b"")
    tx = db.transaction()
    keys = [key async for key, _ in tx.scan(*EVERYTHING, page=page, reverse=reverse)]
    assert keys == sorted([b"a", b"b", b"c", b"d", b"e"], reverse=reverse)


async def test_adds_merge_with_local_writes(db: Database) -> None:
    def number(value: int) -> bytes:
        return value.to_bytes(8, "little", signed=True)

    await fill(db, stored=number(10), short=b"\x01", gone=number(5), covered=number(5))
    tx = db.transaction()
    tx.add(b"stored", 2)
    tx.add(b"stored", -20)
    tx.add(b"short", 1)
    tx.clear(b"gone")
    tx.add(b"gone", 3)
    tx.clear_range(b"covered", b"covered\0")
    tx.add(b"covered", 4)
    tx.set(b"set", number(1))
    tx.add(b"set", 1)
    tx.add(b"replaced", 1)
    tx.set(b"replaced", b"text")
    tx.add(b"fresh", (1 << 63) - 1)
    tx.add(b"fresh", 1)
    expected = {
        b"stored": number(-8),
        b"short": number(2),
        b"gone": number(3),
        b"covered": number(4),
        b"set": number(2),
        b"replaced": b"text",
        b"fresh": number(-(1 << 63)),
    }
    assert dict(await tx.get_range(*EVERYTHING)) == expected
    for key, value in expected.items():
        assert await tx.get(key, snapshot=True) == value
    await tx.commit()
    assert dict(await db.transaction().get_range(*EVERYTHING)) == expected


async def test_a_versionstamp_is_unreadable_before_the_commit(db: Database) -> None:
    tx = db.transaction("stamped")
    tx.set_versionstamped(b"q/", b"/x", b"1")
    with pytest.raises(VersionstampUnknown, match="reading that range"):
        await tx.get_range(b"q/", b"q0")
    with pytest.raises(VersionstampUnknown):
        _ = tx.versionstamp
    assert await tx.get_range(b"a", b"q/") == []
    assert await tx.get(b"q/") is None
    await tx.commit()
    assert await db.transaction().get_range(*EVERYTHING) == [
        (b"q/" + tx.versionstamp + b"/x", b"1")
    ]


async def test_clearing_around_a_versionstamp(db: Database) -> None:
    tx = db.transaction()
    tx.set_versionstamped(b"q/", b"", b"1")
    tx.clear_range(b"q", b"r")
    tx.set_versionstamped(b"q/", b"", b"2")
    with pytest.raises(VersionstampUnknown, match="clearing"):
        tx.clear_range(b"q/", b"q/\x7f")
    await tx.commit()
    assert [value for _, value in await db.transaction().get_range(*EVERYTHING)] == [b"2"]


async def test_a_failed_flush_leaves_the_outcome_unknown_for_every_member() -> None:
    class Broken(MemoryDriver):
        async def commit(self, batch: Sequence[CommitRequest]) -> Sequence[CommitResult]:
            raise OSError("no space left")

    db = Database(Broken())
    transactions = [db.transaction(f"t{number}") for number in range(3)]
    for tx in transactions:
        tx.set(b"a", b"")
    outcomes = await asyncio.gather(*(tx.commit() for tx in transactions), return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [CommitUnknown] * 3
    assert [outcome.name for outcome in outcomes if isinstance(outcome, CommitUnknown)] == [
        "t0",
        "t1",
        "t2",
    ]
    assert "no space left" in str(outcomes[0])


async def test_a_store_that_failed_earlier_has_surely_not_written() -> None:
    class Broken(MemoryDriver):
        async def commit(self, batch: Sequence[CommitRequest]) -> Sequence[CommitResult]:
            raise StoreFailed("here", "no space left")

    tx = Database(Broken()).transaction()
    tx.set(b"a", b"")
    with pytest.raises(StoreFailed, match="no space left"):
        await tx.commit()


@pytest.mark.parametrize("url", ["", "rocksdb:", "postgres://here", "memory:x"])
async def test_unknown_addresses_are_refused(url: str) -> None:
    with pytest.raises(InvalidStoreUrl) as caught:
        await open_database(url)
    assert isinstance(caught.value, CallerError)
