"""A durable step: a description of what to do, run when it is awaited.

Creating a step does nothing. Awaiting it takes the next place in the branch's history, replays
the recorded result if there is one, and otherwise does the work and records it. `join` takes
steps without awaiting them: it gives all of them their places first, in order, and only then runs
them side by side.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Generator
from typing import Any, ClassVar, Generic, TypeVar

from perdure.engine.context.branch import Branch
from perdure.engine.database.rows import WakeConditions
from perdure.engine.history.cursor import Match
from perdure.engine.history.events import EventKind, JoinMark
from perdure.engine.suspension import Suspend

__all__ = ["Step"]

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Step(Generic[T_co]):
    """Await it for its result, or give it to `join`. A step can be used once.

    A constructor calls this one after whatever may fail: what was never a step is not missed.
    """

    __slots__ = (
        "abandoned",
        "branch",
        "in_join",
        "joined",
        "known_delivered",
        "name",
        "placed",
        "reached",
        "version",
    )

    kind: ClassVar[EventKind]

    def __init__(self, branch: Branch, version: int, name: str | None = None) -> None:
        self.branch = branch
        self.version = version
        self.name = name
        self.in_join = False
        self.joined: JoinMark | None = None
        """What the event of a member of a join says of that join."""
        self.placed = False
        self.abandoned = False
        self.known_delivered: bool | None = None
        self.reached = 0
        """Of a member of a join: the time that it moves the branch to if the join succeeds (ms)."""

    def __del__(self) -> None:
        """Say so when the step was forgotten: nothing else would show a missing `await`."""
        if getattr(self, "placed", True):
            return
        if self.branch.suspended is not None or self.branch.run.ending is not None:
            # The run left before its turn came.
            return
        kind = self.kind.name.lower()
        what = kind if self.name is None else f"{kind} {self.name}"
        warnings.warn(
            f"the step {what} was never awaited and did nothing: await it, or give it to ctx.join",
            RuntimeWarning,
            stacklevel=2,
        )

    @property
    def frozen(self) -> bool:
        """Whether this step may only replay: it was abandoned by a join that ended without it."""
        return self.abandoned or self.branch.frozen

    @property
    def cancel_delivered(self) -> bool:
        """Whether a cancel was delivered before this step; members of a join share its start."""
        known = self.known_delivered
        return self.branch.cancel_delivered if known is None else known

    def check_not_abandoned(self) -> None:
        """Raise `Suspend` in a step that may only replay: it must not do anything new."""
        if self.frozen:
            raise Suspend(WakeConditions(), "abandoned member of a join")

    def wants_cancel(self) -> bool:
        """Say whether a cancel request should be delivered to this step.

        Never to one that was inserted in the middle of a history: the code took its later steps.
        """
        if self.branch.run.cancel is None or self.cancel_delivered:
            return False
        return not self.branch.goes_on

    def __await__(self) -> Generator[Any, None, T_co]:
        return self._run().__await__()

    async def _run(self) -> T_co:
        branch = self.branch
        match = self.place()
        try:
            await branch.settle(self, match)
            return await self.perform(match)
        except Suspend as suspension:
            branch.suspended = suspension
            raise
        finally:
            branch.busy = False

    def place(self) -> Match:
        """Take the next place in history. Raises `HistoryDiverged` when something else is there."""
        self.placed = True
        branch = self.branch
        match = branch.enter(self.kind, self.version, self.name, in_join=self.in_join)
        branch.cursor.advance(match)
        return match

    @abstractmethod
    async def perform(self, match: Match) -> T_co:
        """Replay the result from `match`, or do the work and record it."""
