"""When a failed call is tried again, and how long to wait before: pure rules.

Two schedules exist. Ordinary calls retry the codes that mean "the world is at fault" for a bounded
time. Polls for tasks retry for ever, and even what looks like the caller's fault during their
first minute, because a namespace may still be appearing. RESOURCE_EXHAUSTED waits at least its own,
slower schedule; a message that is too large is never sent twice. CANCELLED is the world's fault
only when it is the transport's own word for a stream that was reset; a server words it differently.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from perdure.core.status_codes import (
    ABORTED,
    CANCELLED,
    DATA_LOSS,
    DEADLINE_EXCEEDED,
    INTERNAL,
    OUT_OF_RANGE,
    RESOURCE_EXHAUSTED,
    UNAVAILABLE,
    UNKNOWN,
    message_too_large,
)

__all__ = [
    "CALLS",
    "POLLS",
    "THROTTLED",
    "Backoff",
    "Retries",
    "is_completion_lost",
]

_WORLD = frozenset(
    {UNKNOWN, RESOURCE_EXHAUSTED, ABORTED, OUT_OF_RANGE, INTERNAL, UNAVAILABLE, DATA_LOSS}
)
_POLL = _WORLD | {CANCELLED, DEADLINE_EXCEEDED}
_POLL_GRACE = 60.0
_UNNOTICED = 5
_STREAM_RESET = "CANCELLED"


@dataclass(frozen=True, slots=True)
class Backoff:
    """An exponential schedule; times in seconds, `None` or 0 limits mean unlimited.

    `retries` counts attempts: a call is made that often, the first time included.
    """

    initial: float
    factor: float
    longest: float
    jitter: float
    elapsed: float | None
    retries: int

    def delay(self, attempt: int, random: Callable[[], float]) -> float:
        """The wait after failed attempt `attempt` (from 1), spread by the jitter."""
        plain = min(self.longest, self.initial * self.factor ** min(attempt - 1, 64))
        return plain * (1 + self.jitter * (2 * random() - 1))


CALLS = Backoff(0.1, 1.7, 5.0, 0.2, 10.0, 10)
POLLS = Backoff(0.2, 2.0, 10.0, 0.2, None, 0)
THROTTLED = Backoff(1.0, 2.0, 10.0, 0.2, None, 0)


def is_completion_lost(details: bytes) -> bool:
    """Whether a status says that the pages of a completion are lost: all are to be sent again.

    The type's name is looked for as it stands in the status, which saves the parsing of all others.
    """
    return b"WorkflowTaskCompletionBufferLostFailure" in details


class Retries:
    """The retries of one call: asked after every failure, forgets nothing."""

    __slots__ = ("_attempt", "_backoff", "_poll", "_random", "_started", "_throttled")

    def __init__(
        self, backoff: Backoff, *, poll: bool, now: float, random: Callable[[], float]
    ) -> None:
        self._backoff = backoff
        self._poll = poll
        self._started = now
        self._random = random
        self._attempt = 0
        self._throttled = 0

    @property
    def attempt(self) -> int:
        """How many attempts have failed."""
        return self._attempt

    @property
    def worth_a_warning(self) -> bool:
        """Whether so many attempts failed that somebody should know."""
        return self._attempt > (self._backoff.retries // 2 or _UNNOTICED)

    def after(self, code: int, message: str, now: float) -> float | None:
        """Seconds to wait before trying again, or None when the error is final."""
        self._attempt += 1
        if message_too_large(code, message):
            return None
        backoff = self._backoff
        elapsed = now - self._started
        was_reset = code == CANCELLED and message == _STREAM_RESET
        if not was_reset and code not in (_POLL if self._poll else _WORLD):
            return backoff.longest if self._poll and elapsed < _POLL_GRACE else None
        if backoff.retries and self._attempt >= backoff.retries:
            return None
        delay = backoff.delay(self._attempt, self._random)
        if code == RESOURCE_EXHAUSTED:
            self._throttled += 1
            delay = max(delay, THROTTLED.delay(self._throttled, self._random))
        if backoff.elapsed is not None and elapsed + delay > backoff.elapsed:
            return None
        return delay
