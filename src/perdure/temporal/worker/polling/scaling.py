"""How many polls of one kind are wanted: pure rules, told of every answer and asked for the number.

A fixed number stays what it is. A scaled one follows the server: its suggestions move the target,
up only while tasks come in faster than before, because a suggestion is as old as the poll that
brought it and many polls bring the same one. A server that refuses for lack of resources halves
the target. An empty poll says that one poller less would do, but only if the server is known to
make suggestions: otherwise nothing would ever raise the target again.

Times are in seconds, on any clock that only moves forward.
"""

from __future__ import annotations

from perdure.core.status_codes import RESOURCE_EXHAUSTED
from perdure.temporal.worker.settings import PollerCounts

__all__ = ["LONG_POLL", "SHORT_POLL", "PollScaler"]

LONG_POLL = 70.0
SHORT_POLL = 11.0

_PERIOD = 0.1
_GROWTH = 1.1


class PollScaler:
    """The target of one kind of poll of one worker.

    `suggests` says that the server is known to make suggestions.
    """

    def __init__(self, counts: PollerCounts) -> None:
        self._counts = counts
        self._period_began = 0.0
        self.suggests = False
        self._ingested = 0
        self._ingested_before = 0
        self._grows = True
        self.target = counts.initial

    def polled(self, *, empty: bool, suggestion: int | None, now: float) -> None:
        """A poll was answered; `suggestion` is the server's wish for more or less."""
        if not self._counts.scaled:
            return
        self._roll(now)
        if not empty:
            self._ingested += 1
        if suggestion is not None:
            self.suggests = True
            if suggestion < 0 or self._grows:
                self._move(self.target + suggestion)
        elif empty and self.suggests:
            self._move(self.target - 1)

    def failed(self, code: int) -> None:
        """A poll was refused with this gRPC status."""
        if self._counts.scaled and code == RESOURCE_EXHAUSTED:
            self._move(self.target // 2)

    def deadline(self, now: float) -> float:
        """Seconds after which the next poll gives up.

        A busy worker polls shortly, so that it soon hears of a change of its load.
        """
        if not self._counts.scaled:
            return LONG_POLL
        self._roll(now)
        return SHORT_POLL if self._ingested_before > 1 else LONG_POLL

    def _move(self, wanted: int) -> None:
        self.target = max(self._counts.minimum, min(self._counts.maximum, wanted))

    def _roll(self, now: float) -> None:
        """Close the periods that are over; two quiet ones are like any number of them."""
        over = int((now - self._period_began) / _PERIOD)
        if over <= 0:
            return
        self._period_began += over * _PERIOD
        for _ in range(min(over, 2)):
            self._grows = self._ingested >= self._ingested_before * _GROWTH
            self._ingested_before, self._ingested = self._ingested, 0
        if over > 2:
            self._grows = True
