"""A small world of workflows on a store, for the tests of the engine's operations."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

import pytest

from perdure.engine.database import (
    dispatch as dispatching,
    finish,
    gauges,
    lease as leasing,
    signals,
)
from perdure.engine.database.keys import Keys
from perdure.engine.database.lease import Lease
from perdure.engine.database.rows import (
    PendingSignal,
    Phase,
    Prune,
    Status,
    WakeConditions,
)
from perdure.engine.database.status import read_status
from perdure.engine.history.events import (
    BranchEvent,
    ReceivedSignal,
    SignalsEvent,
)
from perdure.engine.history.location import pack_location
from perdure.engine.tags import Tags
from perdure.ids import Id
from perdure.kv import Database, Transaction
from perdure.kv.errors import TransactionConflict

T = TypeVar("T")
NAME = "order"
START = 1_800_000_000_000


def at(*ordinates: int) -> bytes:
    """The packed location of a step; `at(2, 1)` is the first step below the second one."""
    return pack_location(tuple((ordinate,) for ordinate in ordinates))


def signals_event(taken: list[PendingSignal]) -> SignalsEvent:
    received = [ReceivedSignal(bytes(s.id), s.name, s.body, s.sent_at) for s in taken]
    return SignalsEvent(1, START, START, received)


BRANCH = BranchEvent(1, START, START)


@dataclass
class World:
    """A store, its keys, a worker, and a time that goes on with every look at it."""

    db: Database
    keys: Keys = field(default_factory=lambda: Keys(b"\x02engine\x00"))
    worker: Id = field(default_factory=Id.new)
    time: int = START

    @property
    def now(self) -> int:
        self.time += 1
        return self.time

    async def dispatch(
        self,
        *,
        name: str = NAME,
        tags: Tags | None = None,
        unique: bool | str = False,
        prune: Prune = Prune.ALL,
        payload: bytes = b"input",
    ) -> Id:
        request = dispatching.Dispatch(
            Id.new(), name, payload, tags or {}, Id.new(), unique=unique, prune=prune
        )
        return (await dispatching.dispatch(self.db, self.keys, request, self.now)).id

    async def take(self, name: str = NAME, worker: Id | None = None) -> list[Lease]:
        wakes = await leasing.due(self.db, self.keys, name, self.now + 1_000, 1000)
        return await leasing.take(self.db, self.keys, wakes, worker or self.worker, self.now)

    async def run(self, **options: str | bool) -> Lease:
        """Dispatch a workflow and take it."""
        workflow_id = await self.dispatch(**options)  # type: ignore[arg-type]  # a subset of them
        name = str(options.get("name", NAME))
        return next(lease for lease in await self.take(name) if lease.workflow_id == workflow_id)

    async def sleep(
        self,
        lease: Lease,
        *,
        signals: tuple[str, ...] = (),
        children: tuple[Id, ...] = (),
        deadline: int | None = None,
    ) -> bool:
        conditions = WakeConditions(signals=signals, children=children, deadline=deadline)
        return await finish.suspend(self.db, self.keys, lease, conditions, self.now)

    async def publish(self, target: Id, name: str = "paid", body: bytes = b"1") -> str | None:
        published = await signals.publish(
            self.db, self.keys, target, self.signal(name, body), self.now
        )
        return published.woken

    def signal(self, name: str = "paid", body: bytes = b"1") -> PendingSignal:
        return PendingSignal(Id.new(), name, body, Id.new(), START)

    async def status(self, workflow_id: Id) -> Status:
        found = await read_status(self.db.transaction(), self.keys, workflow_id)
        assert found is not None
        return found[1]

    async def phase(self, workflow_id: Id) -> Phase:
        return (await self.status(workflow_id)).phase

    async def rows(self) -> list[tuple[bytes, bytes]]:
        return await self.db.transaction().get_range(b"", b"\xff")

    async def gauges(self) -> gauges.Gauges:
        """The counters that are not zero."""
        found = await gauges.gauges(self.db, self.keys)
        workflows = {
            name: counts
            for name, all_counts in found.workflows.items()
            if (counts := {phase: count for phase, count in all_counts.items() if count})
        }
        return gauges.Gauges(workflows, {n: count for n, count in found.signals.items() if count})

    async def counts(self, name: str = NAME) -> dict[str, int]:
        return (await self.gauges()).workflows.get(name, {})

    async def overtaken(
        self,
        slow: Callable[[Transaction], Awaitable[T]],
        fast: Callable[[Database], Awaitable[object]],
    ) -> T:
        """Run `slow`, let `fast` commit before it does, check that it is refused, run it again.

        So the second run sees what `fast` did; its result, or its error, is that of the race.
        """
        transaction = self.db.transaction("slow")
        await slow(transaction)
        await fast(self.db)
        with pytest.raises(TransactionConflict):
            await transaction.commit()
        again = self.db.transaction("again")
        result = await slow(again)
        await again.commit()
        return result
