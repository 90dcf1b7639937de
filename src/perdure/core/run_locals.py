"""The local activities of one run, as far as its workflow tasks are concerned.

Three things are decided here and nowhere else:

* results wait until the run can give them to lang, one activation each, so that a replay of the
  history sees them in the same order;
* a task that is kept only because local activities run has to be renewed before it times out;
* a run that leaves the cache first has everything local cancelled, and its eviction is withheld
  until lang has heard of every cancellation. What ends in the meantime is of no interest.
"""

from __future__ import annotations

import enum
from collections import deque
from typing import Final

from perdure.core.local_requests import LocalResult

__all__ = ["HEARTBEAT_FRACTION", "RunLocals"]

HEARTBEAT_FRACTION: Final = 0.8
"""Part of the task's time-out after which the server is told that local activities still run."""


class _Leaving(enum.Enum):
    NO = "no"
    CANCELLING = "cancelling"
    CANCELLED = "cancelled"


class RunLocals:
    """See the module."""

    __slots__ = ("_leaving", "_results", "had_any", "heartbeat_due", "heartbeat_set", "holds_task")

    def __init__(self) -> None:
        self.had_any = False
        self.holds_task = False
        self.heartbeat_set = False
        self.heartbeat_due = False
        self._results: deque[tuple[int, LocalResult]] = deque()
        self._leaving = _Leaving.NO

    def task_began(self) -> None:
        """Every new task starts the time for its own renewal."""
        self.holds_task = self.heartbeat_set = self.heartbeat_due = False

    def resolved(self, seq: int, result: LocalResult) -> None:
        """One is over."""
        if self._leaving is _Leaving.NO:
            self._results.append((seq, result))

    def next_result(self) -> tuple[int, LocalResult] | None:
        """The result that lang hears of next; it is gone afterwards."""
        return self._results.popleft() if self._results else None

    @property
    def may_leave(self) -> bool:
        """True if nothing local of the run can surface any more."""
        return not self.had_any or self._leaving is _Leaving.CANCELLED

    def begin_leaving(self) -> bool:
        """True if everything local has to be cancelled now; false if that is under way."""
        if self._leaving is not _Leaving.NO:
            return False
        self._leaving = _Leaving.CANCELLING
        self._results.clear()
        return True

    def cancels_delivered(self) -> None:
        """Lang has heard of every cancellation."""
        self._leaving = _Leaving.CANCELLED
