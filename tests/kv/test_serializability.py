"""Random concurrent transactions on a real database are serializable, and the proof is not blind.

The second half plants bugs in a driver and demands that the checker finds them.
"""

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from sortedcontainers import SortedDict

from perdure.kv import Database
from perdure.kv.conflicts import RecentWrites
from perdure.kv.driver import CommitRequest, CommitResult, Refusal
from perdure.kv.errors import CommitUnknown, RetriesExhausted
from perdure.kv.memory import MemoryDriver
from perdure.testing.recorder import Attempt, RecordedTransaction, Recorder, Set, read_marks
from perdure.testing.serializability import (
    NotSerializable,
    assert_serializable,
    find_anomalies,
)
from perdure.testing.store import Store

KEYS = [b"key/%02d" % number for number in range(12)]
COUNTERS = [b"sum/%d" % number for number in range(2)]
END = b"key0"


class Workload:
    """Clients that read some keys and ranges, and write some, in small random transactions.

    Every value is used once, so a read tells which write it saw.
    """

    def __init__(self, recorder: Recorder, seed: int) -> None:
        self.recorder = recorder
        self.random = random.Random(seed)
        self.values = 0

    async def run(self, *, clients: int = 12, rounds: int = 25) -> None:
        await asyncio.gather(*(self.client(number, rounds) for number in range(clients)))

    async def client(self, number: int, rounds: int) -> None:
        for _ in range(rounds):
            try:
                await self.recorder.run(self.body, name=f"client {number}", attempts=5)
            except (CommitUnknown, RetriesExhausted):
                continue

    async def body(self, transaction: RecordedTransaction) -> None:
        rng = self.random
        for _ in range(rng.randint(1, 3)):
            await self.read(transaction)
            for _ in range(rng.choice([0, 0, 1, 3])):
                await asyncio.sleep(0)
        if rng.random() < 0.8:
            for _ in range(rng.randint(1, 2)):
                self.write(transaction)
            if rng.random() < 0.3:
                await self.read(transaction)

    async def read(self, transaction: RecordedTransaction) -> None:
        rng = self.random
        snapshot = rng.random() < 0.15
        if rng.random() < 0.5:
            await transaction.get(rng.choice(KEYS + COUNTERS), snapshot=snapshot)
        else:
            begin, end = sorted(rng.sample([*KEYS, END], 2))
            await transaction.get_range(
                begin,
                end,
                limit=rng.choice([0, 1, 3]),
                reverse=rng.random() < 0.5,
                snapshot=snapshot,
            )

    def write(self, transaction: RecordedTransaction) -> None:
        rng = self.random
        self.values += 1
        choice = rng.random()
        if choice < 0.65:
            transaction.set(rng.choice(KEYS), b"value %d" % self.values)
        elif choice < 0.75:
            transaction.add(rng.choice(COUNTERS), self.values)
        elif choice < 0.9:
            transaction.clear(rng.choice(KEYS))
        else:
            begin, end = sorted(rng.sample([*KEYS, END], 2))
            transaction.clear_range(begin, end)


@pytest.mark.parametrize("seed", range(3))
async def test_random_histories_are_serializable(store: Store, seed: int) -> None:
    recorder = Recorder(store.database)
    await Workload(recorder, seed).run()
    outcomes = [attempt.outcome.value for attempt in recorder.attempts]
    assert outcomes.count("committed") > 200
    assert outcomes.count("refused") > 20
    assert_serializable(recorder.attempts, await read_marks(await store.reopen()))


async def test_a_history_with_lost_answers_and_refusals_is_serializable() -> None:
    driver = MemoryDriver()
    faults = driver.faults
    for commit in range(5, 150, 9):
        faults.unknown(applied=commit % 2 == 0, commit=commit)
        faults.conflict(commit=commit + 3)
    database = Database(driver)
    recorder = Recorder(database)
    await Workload(recorder, 7).run()
    outcomes = [attempt.outcome.value for attempt in recorder.attempts]
    assert outcomes.count("unknown") > 10
    assert_serializable(recorder.attempts, await read_marks(database))


class IgnoresRanges(RecentWrites):
    """Forgets that ranges were read."""

    __slots__ = ()

    def check(self, request: CommitRequest) -> Refusal | None:
        request.read_ranges = []
        return super().check(request)


class IgnoresPoints(RecentWrites):
    """Forgets that keys were read."""

    __slots__ = ()

    def check(self, request: CommitRequest) -> Refusal | None:
        request.read_keys = set()
        return super().check(request)


def broken_conflicts(recent: type[RecentWrites]) -> Callable[[], MemoryDriver]:
    def make() -> MemoryDriver:
        driver = MemoryDriver()
        driver._recent = recent(0)
        return driver

    return make


class NumbersBeforeVisible(MemoryDriver):
    """Hands out the new version before its data can be read."""

    async def commit(self, batch: Sequence[CommitRequest]) -> Sequence[CommitResult]:
        before = self._version
        self._publish(before + 1)
        self._version = before
        for _ in range(3):
            await asyncio.sleep(0)
        return await super().commit(batch)


class PublishesBeforeDurable(MemoryDriver):
    """Lets everybody read a commit, and then every fifth flush fails and takes it away."""

    def __init__(self) -> None:
        super().__init__()
        self._flushes = 0

    async def commit(self, batch: Sequence[CommitRequest]) -> Sequence[CommitResult]:
        durable: Any = SortedDict(self._rows)
        version, recent, snapshot = self._version, self._recent, self._snapshot
        results = await super().commit(batch)
        for _ in range(3):
            await asyncio.sleep(0)
        self._flushes += 1
        if self._flushes % 5:
            return results
        self._rows, self._version, self._recent, self._snapshot = durable, version, recent, snapshot
        return [Refusal.UNKNOWN for _ in batch]


class AcknowledgesTooEarly(MemoryDriver):
    """Says "committed" and now and then forgets to do it."""

    def _apply(self, request: CommitRequest, version: int, index: int) -> None:
        if version % 20:
            super()._apply(request, version, index)


class ReadsTheNewest(MemoryDriver):
    """Snapshots that move along with the store."""

    async def commit(self, batch: Sequence[CommitRequest]) -> Sequence[CommitResult]:
        results = await super().commit(batch)
        for watched in self._alive:
            snapshot = watched()
            if snapshot is not None:
                # The data moves, what the transaction believes to have read at does not.
                snapshot.version = self._version
        return results


PLANTED: dict[str, tuple[Callable[[], MemoryDriver], set[str]]] = {
    "ignores ranges": (broken_conflicts(IgnoresRanges), {"replay", "graph"}),
    "ignores points": (broken_conflicts(IgnoresPoints), {"replay", "graph"}),
    "numbers before visible": (NumbersBeforeVisible, {"one state", "replay", "graph"}),
    "publishes before durable": (PublishesBeforeDurable, {"one state", "graph"}),
    "acknowledges too early": (AcknowledgesTooEarly, {"testimony", "one state"}),
    "reads the newest": (ReadsTheNewest, {"one state"}),
}


@pytest.mark.parametrize("bug", PLANTED)
async def test_the_checker_finds_a_planted_bug(bug: str) -> None:
    make, expected = PLANTED[bug]
    database = Database(make())
    recorder = Recorder(database)
    await Workload(recorder, 3).run(rounds=40)
    anomalies = find_anomalies(recorder.attempts, await read_marks(database))
    found = {anomaly.partition(":")[0] for anomaly in anomalies}
    assert expected <= found, anomalies[:5]


@pytest.mark.parametrize("bug", ["ignores ranges", "ignores points"])
async def test_a_cycle_names_who_is_in_it(bug: str) -> None:
    database = Database(PLANTED[bug][0]())
    recorder = Recorder(database)
    one, other = recorder.transaction("one"), recorder.transaction("other")
    for transaction, mine, others in ((one, b"a", b"b"), (other, b"b", b"a")):
        if bug == "ignores points":
            await transaction.get(others)
        else:
            await transaction.get_range(others, others + b"\xff")
        transaction.set(mine, b"write skew")
    await one.commit()
    await other.commit()
    with pytest.raises(NotSerializable, match="nobody comes first") as caught:
        assert_serializable(recorder.attempts, await read_marks(database))
    assert "one#0 did not see the write of b'b' by other#1" in caught.value.message
    assert "other#1 did not see the write of b'a' by one#0" in caught.value.message


async def small_history() -> tuple[list[Attempt], list[tuple[bytes, int]]]:
    """One writes, then another one reads it and writes something else."""
    database = Database(MemoryDriver())
    recorder = Recorder(database)
    one = recorder.transaction("one")
    one.set(b"a", b"1")
    await one.commit()
    other = recorder.transaction("other")
    await other.get(b"a")
    other.set(b"b", b"2")
    await other.commit()
    marks = await read_marks(database)
    assert find_anomalies(recorder.attempts, marks) == []
    return recorder.attempts, marks


async def test_a_stale_read_of_what_was_long_acknowledged_is_a_cycle_in_real_time() -> None:
    database = Database(MemoryDriver())
    recorder = Recorder(database)
    stale = database.driver.snapshot()
    one = recorder.transaction("one")
    one.set(b"a", b"1")
    await one.commit()
    database._snapshot = lambda: stale
    reader = recorder.transaction("reader")
    assert await reader.get(b"a") is None
    await reader.commit()
    marks = await read_marks(Database(database.driver))
    (anomaly,) = find_anomalies(recorder.attempts, marks)
    assert anomaly.startswith("graph: nobody comes first")
    assert "moment" in anomaly


async def test_marks_that_contradict_the_owners_are_found() -> None:
    attempts, marks = await small_history()
    assert any("not in the store" in line for line in find_anomalies(attempts, marks[:1]))
    twice = [*marks, (b"\x00" * 9 + b"\x63", marks[0][1])]
    assert any("applied 2 times" in line for line in find_anomalies(attempts, twice))
    swapped = [(marks[0][0], marks[1][1]), (marks[1][0], marks[0][1])]
    assert any("was told" in line for line in find_anomalies(attempts, swapped))


async def test_a_value_nobody_wrote_is_found() -> None:
    attempts, marks = await small_history()
    attempts[0].operations[0] = Set(b"a", b"something else")
    anomalies = find_anomalies(attempts, marks)
    assert any("which no committed attempt wrote" in line for line in anomalies)
    assert any(line.startswith("replay: other#1 got") for line in anomalies)
    assert any(line.startswith("one state: at version 1 other#1") for line in anomalies)
