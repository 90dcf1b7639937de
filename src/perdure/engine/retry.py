"""When a failed activity runs again: pure arithmetic, no clock and no I/O.

Attempts mean attempts: `attempts=1` runs once. The delay before attempt n+1 is
`initial * factor ** (n-1)` seconds, at most `maximum`, plus a random part of `jitter` seconds so
that workflows that failed together do not come back together.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final, TypedDict

from perdure.engine.errors import InvalidOption

__all__ = ["DEFAULT_RETRY", "RetryOptions", "RetryPolicy", "seconds"]

_NO_GROWTH_AFTER = 64


def seconds(duration: float | timedelta, what: str) -> float:
    """Return a duration in seconds. Raises `InvalidOption` for negative, NaN or absurd values."""
    value = duration.total_seconds() if isinstance(duration, timedelta) else float(duration)
    if not 0 <= value <= 1e11:
        raise InvalidOption(what, duration, "a duration is between 0 and 1e11 seconds")
    return value


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and how patiently an activity is tried.

    `attempts` counts all runs, None is without end. `initial`, `factor`, `maximum` and `jitter`
    shape the back-off (seconds). `timeout` bounds one attempt, `total_timeout` all attempts and the
    pauses between them, `heartbeat_timeout` the silence between two heartbeats; None means no
    bound.
    `non_retryable` are exception types (subclasses count) after which there is no further attempt.
    """

    attempts: int | None = 5
    initial: float = 1.0
    factor: float = 2.0
    maximum: float = 256.0
    timeout: float | None = 30.0
    total_timeout: float | None = None
    heartbeat_timeout: float | None = None
    non_retryable: tuple[type[BaseException], ...] = ()
    jitter: float = 0.5

    def __post_init__(self) -> None:
        if self.attempts is not None and self.attempts < 1:
            raise InvalidOption("attempts", self.attempts, "at least 1, or None for no limit")
        if self.factor < 1:
            raise InvalidOption("factor", self.factor, "at least 1")
        for name in ("initial", "maximum", "jitter"):
            object.__setattr__(self, name, seconds(getattr(self, name), name))
        for name in ("timeout", "total_timeout", "heartbeat_timeout"):
            bound = getattr(self, name)
            if bound is not None:
                object.__setattr__(self, name, seconds(bound, name))

    def override(self, options: RetryOptions | dict[str, Any]) -> RetryPolicy:
        """Return a policy in which `options` replace what they name. Raises `InvalidOption`."""
        if not options:
            return self
        for name, value in options.items():
            if name not in _OPTIONS:
                raise InvalidOption(name, value, f"use one of {', '.join(_OPTIONS)}")
        return replace(self, **options)

    def delay(self, failed_attempts: int, rng: random.Random) -> float:
        """Return the pause in seconds after the n-th failed attempt (n from 1)."""
        exponent = min(failed_attempts - 1, _NO_GROWTH_AFTER)
        try:
            base = self.initial * self.factor**exponent
        except OverflowError:
            base = self.maximum
        return min(base, self.maximum) + rng.random() * self.jitter

    def gives_up(self, error: BaseException, attempt: int, elapsed: float) -> bool:
        """Say whether attempt number `attempt` was the last; `elapsed` s since the first began."""
        if isinstance(error, self.non_retryable):
            return True
        if self.attempts is not None and attempt >= self.attempts:
            return True
        return self.total_timeout is not None and elapsed >= self.total_timeout


class RetryOptions(TypedDict, total=False):
    """What can be said of a policy by keyword; see `RetryPolicy`."""

    attempts: int | None
    initial: float | timedelta
    factor: float
    maximum: float | timedelta
    timeout: float | timedelta | None
    total_timeout: float | timedelta | None
    heartbeat_timeout: float | timedelta | None
    non_retryable: tuple[type[BaseException], ...]
    jitter: float | timedelta


_OPTIONS: Final = tuple(RetryOptions.__annotations__)

DEFAULT_RETRY = RetryPolicy()
