"""At most so many starts per second, without a clock."""

from __future__ import annotations

__all__ = ["RateLimit"]


class RateLimit:
    """Spaces starts evenly: what was not used while nothing happened is not made up for."""

    __slots__ = ("_interval", "_next")

    def __init__(self, per_second: float) -> None:
        """`per_second` is greater than zero."""
        self._interval = 1.0 / per_second
        self._next = 0.0

    def reserve(self, now: float) -> float:
        """Take the next start; the answer is how many seconds to wait for it, mostly 0."""
        at = max(self._next, now)
        self._next = at + self._interval
        return at - now
