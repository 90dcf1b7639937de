"""One line of execution inside a run: a cursor over the events of one root, and its rules.

A workflow's body is a branch; every closure in a join, every inlined workflow and every loop
iteration is another. Within a branch steps happen one after the other, which is what makes
locations repeatable; running two at once is refused with a pointer to `join`.
"""

from __future__ import annotations

import hashlib
import random
from typing import TYPE_CHECKING, Any

from perdure.engine.database.rows import WakeConditions
from perdure.engine.errors import (
    Cancelled,
    ConcurrentStep,
    HistoryDiverged,
    LatentHistoryFound,
)
from perdure.engine.history.cursor import CancelledHere, Cursor, Match, Replay
from perdure.engine.history.events import CancelEvent, Event, EventKind, JoinMark
from perdure.engine.history.location import Coordinate, Location, pack_coordinate
from perdure.engine.suspension import Suspend

if TYPE_CHECKING:
    from perdure.engine.context.run import Run
    from perdure.engine.context.step import Step

__all__ = ["INNER", "Branch"]

INNER: Coordinate = (1,)
"""Where a step keeps a second event of its own: the interruption, signals or outcome inside it."""


class Branch:
    """A cursor, the location of its root, and what the steps of this root share."""

    __slots__ = (
        "_random",
        "at",
        "busy",
        "cancel_delivered",
        "concurrent",
        "cursor",
        "entered",
        "frozen",
        "location",
        "parent",
        "past",
        "root",
        "run",
        "suspended",
    )

    def __init__(
        self,
        run: Run,
        location: Location,
        *,
        at: int,
        cancel_delivered: bool = False,
        concurrent: bool = False,
        frozen: bool = False,
        parent: Branch | None = None,
        past: bool = False,
    ) -> None:
        self.run = run
        self.location = location
        self.root = b"".join(map(pack_coordinate, location))
        self.cursor = Cursor(run.events(self.root), location)
        self.at = at
        self.busy = False
        self.cancel_delivered = cancel_delivered
        self.concurrent = concurrent
        self.frozen = frozen
        self.parent = parent
        self.past = past
        """Whether the code has left this branch, says the history: everything in it is over."""
        self.entered = 0
        self.suspended: Suspend | None = None
        self._random: random.Random | None = None

    @property
    def goes_on(self) -> bool:
        """Whether the history holds steps behind this point, in this branch or around it."""
        if self.past or self.cursor.peek() is not None:
            return True
        return self.parent is not None and self.parent.goes_on

    def key(self, coordinate: Coordinate) -> bytes:
        """Return the packed location of the event at `coordinate` of this root."""
        return self.root + pack_coordinate(coordinate)

    def child(
        self, coordinate: Coordinate, step: Step[Any] | None = None, *, past: bool = False
    ) -> Branch:
        """Return the branch whose root is the event at `coordinate`; `step` is what opens it."""
        in_join = step is not None and step.in_join
        return Branch(
            self.run,
            (*self.location, coordinate),
            at=self.at,
            cancel_delivered=self.cancel_delivered if step is None else step.cancel_delivered,
            concurrent=self.concurrent or in_join,
            frozen=self.frozen if step is None else step.frozen,
            parent=self,
            past=past,
        )

    def rejoin(self, child: Branch) -> None:
        """Take over what a finished child branch learned."""
        self.at = max(self.at, child.at)
        self.cancel_delivered = self.cancel_delivered or child.cancel_delivered

    def check_may_run(self) -> None:
        """Raise unless a step may begin here now."""
        run = self.run
        if run.ending is not None:
            raise run.ending
        if self.suspended is not None:
            raise self.suspended
        if self.busy:
            raise ConcurrentStep(run.lease.workflow_id, self.location)
        run.leave_if_stopping(WakeConditions(immediate=True))
        self.entered += 1

    def enter(
        self, kind: EventKind, version: int, name: str | None, *, in_join: bool = False
    ) -> Match:
        """Begin a step: check that it may run and find its place in the history."""
        self.check_may_run()
        try:
            match = self.cursor.compare(kind, version, name, in_join=in_join)
        except HistoryDiverged as error:
            raise self.run.end(error) from None
        self.busy = True
        return match

    async def settle(self, step: Step[Any], match: Match) -> None:
        """Before a step does new work: deliver a cancel, and refuse work in abandoned branches.

        Raises `Cancelled` when the history says so, or when a cancel request was not yet
        delivered to this branch; the delivery is then recorded at the step's own place.
        """
        if type(match) is Replay:
            return
        if isinstance(match, CancelledHere):
            self.pass_over(match.event)
            self.cancel_delivered = True
            raise Cancelled(match.event.reason)
        step.check_not_abandoned()
        if step.wants_cancel():
            key = self.key(match.coordinate)
            await self._record_cancel(key, interrupts=False, joined=step.joined)

    def inner_event(self, coordinate: Coordinate) -> Event | None:
        """Return the recorded event inside the step at `coordinate`, if there is one."""
        events = self.run.events(self.root + pack_coordinate(coordinate))
        return events[0][1] if events else None

    def inner_key(self, coordinate: Coordinate) -> bytes:
        """Return the packed location of the event inside the step at `coordinate`."""
        return self.key(coordinate) + pack_coordinate(INNER)

    def check_interrupted(self, coordinate: Coordinate) -> None:
        """Raise `Cancelled` when history records that a cancel interrupted this step."""
        event = self.inner_event(coordinate)
        if isinstance(event, CancelEvent):
            self.pass_over(event)
            self.cancel_delivered = True
            raise Cancelled(event.reason)

    async def interrupt(self, coordinate: Coordinate) -> None:
        """Deliver a cancel to a step that waits: recorded inside the step. Raises `Cancelled`."""
        await self._record_cancel(self.inner_key(coordinate), interrupts=True)

    async def _record_cancel(
        self, key: bytes, *, interrupts: bool, joined: JoinMark | None = None
    ) -> None:
        run = self.run
        now = run.now()
        event = CancelEvent(
            version=1,
            created_at=now,
            at=now,
            interrupts=interrupts,
            reason=run.cancel_reason,
            joined=joined,
        )
        await run.write(key, event)
        self.pass_over(event)
        self.cancel_delivered = True
        raise Cancelled(run.cancel_reason)

    def pass_over(self, event: Event) -> None:
        """Move the branch's time to the event's."""
        self.at = max(self.at, event.at)

    def random(self) -> random.Random:
        """Return the generator of this branch: the same sequence on every replay."""
        if self._random is None:
            seed = hashlib.blake2b(self.run.lease.workflow_id, digest_size=16)
            seed.update(self.root)
            self._random = random.Random(int.from_bytes(seed.digest(), "big"))
        return self._random

    def finish(self) -> None:
        """Check the end of the code of this branch.

        Raises `LatentHistoryFound` when recorded events were left unused, and raises once more
        what the code should not have swallowed: a suspension, or a diverged history.
        """
        if self.run.ending is not None:
            raise self.run.ending
        if self.suspended is not None:
            raise self.suspended
        remaining = self.cursor.remaining()
        if remaining:
            raise self.run.end(LatentHistoryFound(self.location, remaining))
