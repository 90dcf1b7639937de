"""One store for all processes of a simulation, with a network in between.

The store itself is a `MemoryDriver` and lives outside of all processes: what it was sent it does,
also when the sender is dead by then. Each process has a connection of its own, a `Driver` for a
`Database` of its own. Reads may be late. A commit takes time on the way there and on the way back,
so others see it before its sender hears of it; commits of different processes overtake each other.

`StoreTrouble` says how often what goes wrong. It may be replaced at any time.
"""

from __future__ import annotations

import asyncio
import contextvars
import random as random_module
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from perdure.kv import Database
from perdure.kv.driver import CommitRequest, CommitResult, Snapshot
from perdure.kv.errors import StoreClosed
from perdure.kv.memory import MemoryDriver
from perdure.testing.simulation.clock import SimulatedClock
from perdure.testing.simulation.loop import Process, SimulationLoop

__all__ = ["SimulatedStore", "StoreTrouble"]

Observer = Callable[[Process, Sequence[CommitRequest], Sequence[CommitResult]], None]


@dataclass(frozen=True, slots=True)
class StoreTrouble:
    """Chances between 0 and 1, times in seconds.

    `conflict`: a commit is refused although nobody was in its way. `unknown`: its answer is lost;
    whether it took place is a toss-up. `slow`: a commit takes up to `slowest` on its way.
    `late_read`: a read takes up to `latest_read`.
    """

    conflict: float = 0.0
    unknown: float = 0.0
    slow: float = 0.0
    slowest: float = 0.0
    late_read: float = 0.0
    latest_read: float = 0.0


class SimulatedStore:
    """Made by `Simulation`. `before` and `after` are told about every batch of commits."""

    def __init__(self, loop: SimulationLoop, random: random_module.Random) -> None:
        self.trouble = StoreTrouble()
        self.driver = MemoryDriver(clock=SimulatedClock(loop))
        self.before: Callable[[Process, Sequence[CommitRequest]], None] = lambda *_: None
        self.after: Observer = lambda *_: None
        self._loop = loop
        self._random = random

    def connect(self, process: Process, clock: SimulatedClock) -> Database:
        """Give a process its own handle on the store."""
        seed = self._random.getrandbits(64)
        driver = _Connection(self, process)
        return Database(driver, clock=clock, random=random_module.Random(seed))

    def database(self) -> Database:
        """A handle without a network in between, for whoever watches the simulation."""
        return Database(self.driver, clock=SimulatedClock(self._loop))

    def delay_of_commit(self) -> float:
        """How long one way of a commit takes, in seconds."""
        trouble = self.trouble
        if self._random.random() < trouble.slow:
            return self._random.random() * trouble.slowest
        return self._random.random() * 0.001

    def delay_of_read(self) -> float:
        """How long a read takes, in seconds; usually no time at all."""
        trouble = self.trouble
        if trouble.late_read and self._random.random() < trouble.late_read:
            return self._random.random() * trouble.latest_read
        return 0.0

    def submit(
        self, process: Process, batch: Sequence[CommitRequest]
    ) -> asyncio.Future[Sequence[CommitResult]]:
        """Send a batch. It will be decided whatever becomes of the sender."""
        answer: asyncio.Future[Sequence[CommitResult]] = self._loop.create_future()
        delay = self.delay_of_commit()
        own = contextvars.Context()
        self._loop.call_later(delay, self._decide, process, batch, answer, context=own)
        return answer

    def _decide(
        self,
        process: Process,
        batch: Sequence[CommitRequest],
        answer: asyncio.Future[Sequence[CommitResult]],
    ) -> None:
        trouble, faults = self.trouble, self.driver.faults
        for number, _ in enumerate(batch, faults.commits + 1):
            chance = self._random.random()
            if chance < trouble.conflict:
                faults.conflict(commit=number)
            elif chance < trouble.conflict + trouble.unknown:
                faults.unknown(commit=number, applied=self._random.random() < 0.5)
        self.before(process, batch)
        results = _at_once(self.driver, batch)
        self.after(process, batch, results)
        self._loop.call_later(
            self.delay_of_commit(), _tell, answer, results, context=contextvars.Context()
        )


class _Connection:
    """A `Driver` of one process."""

    def __init__(self, store: SimulatedStore, process: Process) -> None:
        self._store = store
        self._process = process

    @property
    def path(self) -> Path | None:
        return None

    def snapshot(self) -> Snapshot:
        self._check()
        return _LateSnapshot(self._store, self._store.driver.snapshot())

    async def commit(self, batch: Sequence[CommitRequest]) -> Sequence[CommitResult]:
        self._check()
        return await self._store.submit(self._process, batch)

    async def close(self) -> None:
        return

    def _check(self) -> None:
        # Only what is buried can come here dead.
        if not self._process.alive:
            raise StoreClosed(f"simulation:{self._process.name}")


class _LateSnapshot:
    __slots__ = ("_snapshot", "_store")

    def __init__(self, store: SimulatedStore, snapshot: Snapshot) -> None:
        self._store = store
        self._snapshot = snapshot

    @property
    def version(self) -> int:
        return self._snapshot.version

    async def get(self, key: bytes) -> bytes | None:
        await self._wait()
        return await self._snapshot.get(key)

    async def get_range(
        self, begin: bytes, end: bytes, limit: int, reverse: bool
    ) -> list[tuple[bytes, bytes]]:
        await self._wait()
        return await self._snapshot.get_range(begin, end, limit, reverse)

    async def _wait(self) -> None:
        delay = self._store.delay_of_read()
        if delay:
            await asyncio.sleep(delay)


def _at_once(driver: MemoryDriver, batch: Sequence[CommitRequest]) -> Sequence[CommitResult]:
    """Commit without giving way to anybody: the faults in use never wait."""
    try:
        driver.commit(batch).send(None)
    except StopIteration as finished:
        results: Sequence[CommitResult] = finished.value
        return results
    raise AssertionError("a commit to memory waited for something")


def _tell(answer: asyncio.Future[Sequence[CommitResult]], results: Sequence[CommitResult]) -> None:
    if not answer.done():
        answer.set_result(results)
