"""Faults a test can order from the memory driver, aimed at one commit.

Every fault names its target: the `commit`-th commit request since the driver was opened (1 is the
first), the `times` next commits of transactions called `name`, or, with neither, the next commit.
"Before" and "after" are the two sides of the moment of durability, the only moment that counts: a
process that dies after it has committed, whether or not anybody heard.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from enum import Enum, auto

from perdure.kv.driver import CommitRequest

__all__ = ["Crash", "Fault", "Faults", "Gate", "Kind"]


class Crash(BaseException):
    """The simulated death of the process. Not an `Exception`: nothing may handle it and go on."""


class Kind(Enum):
    """What a fault does to a commit; see the methods of `Faults`."""

    CONFLICT = auto()
    UNKNOWN_NOT_APPLIED = auto()
    UNKNOWN_APPLIED = auto()
    HOLD_BEFORE = auto()
    HOLD_AFTER = auto()
    DELAY = auto()
    CRASH_BEFORE = auto()
    CRASH_AFTER = auto()


class Gate:
    """Holds a commit, and with it all later ones, until the test opens it."""

    def __init__(self) -> None:
        self._reached = asyncio.Event()
        self._opened = asyncio.Event()

    async def reached(self) -> None:
        """Wait until a commit stands at the gate."""
        await self._reached.wait()

    def open(self) -> None:
        """Let the commit go on, and all later ones."""
        self._opened.set()

    async def pass_through(self) -> None:
        """For the driver: stand at the gate until it is open."""
        self._reached.set()
        await self._opened.wait()


@dataclass
class Fault:
    """One order: what is to happen, to which commit, and how often still."""

    kind: Kind
    commit: int | None
    name: str | None
    times: int
    seconds: float = 0.0
    gate: Gate = field(default_factory=Gate)

    def hits(self, number: int, request: CommitRequest) -> bool:
        """Whether it is meant for this request, the driver's `number`-th."""
        if self.commit is not None and self.commit != number:
            return False
        return self.name is None or self.name == request.name


class Faults:
    """The faults ordered from one driver. `commits` counts the commit requests it has seen."""

    def __init__(self) -> None:
        self.commits = 0
        self._ordered: list[Fault] = []

    def conflict(
        self, *, commit: int | None = None, name: str | None = None, times: int = 1
    ) -> None:
        """Refuse the commit although nothing it read has changed."""
        self._order(Kind.CONFLICT, commit, name, times)

    def unknown(
        self,
        *,
        applied: bool,
        commit: int | None = None,
        name: str | None = None,
        times: int = 1,
    ) -> None:
        """Lose the answer; `applied` says whether the commit took place."""
        kind = Kind.UNKNOWN_APPLIED if applied else Kind.UNKNOWN_NOT_APPLIED
        self._order(kind, commit, name, times)

    def hold(
        self, *, commit: int | None = None, name: str | None = None, durable: bool = False
    ) -> Gate:
        """Hold the commit at a gate: before it takes place or, if `durable`, before it is seen."""
        kind = Kind.HOLD_AFTER if durable else Kind.HOLD_BEFORE
        return self._order(kind, commit, name, 1).gate

    def delay(
        self,
        seconds: float,
        *,
        commit: int | None = None,
        name: str | None = None,
        times: int = 1,
    ) -> None:
        """Let the commit take `seconds` of the driver's clock."""
        self._order(Kind.DELAY, commit, name, times).seconds = seconds

    def crash(
        self, *, commit: int | None = None, name: str | None = None, durable: bool = False
    ) -> None:
        """Die at the commit: before it takes place or, if `durable`, before anyone hears."""
        self._order(Kind.CRASH_AFTER if durable else Kind.CRASH_BEFORE, commit, name, 1)

    def take(self, request: CommitRequest) -> dict[Kind, Fault]:
        """Count the request and return the faults that hit it, at most one of a kind."""
        self.commits += 1
        taken: dict[Kind, Fault] = {}
        for fault in self._ordered:
            if fault.kind not in taken and fault.hits(self.commits, request):
                taken[fault.kind] = fault
                fault.times -= 1
        self._ordered = [fault for fault in self._ordered if fault.times > 0]
        return taken

    def _order(self, kind: Kind, commit: int | None, name: str | None, times: int) -> Fault:
        fault = Fault(kind, commit, name, times)
        self._ordered.append(fault)
        return fault
