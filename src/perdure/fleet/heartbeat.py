"""Judging from outside whether somebody is still alive, without trusting anybody's clock.

A heartbeat is a stored wall-clock time that its owner renews. Comparing it with one's own wall
clock is wrong as soon as one of the clocks is: an observer that is ahead would declare everybody
lost, again and again; an owner that was ahead and died would seem alive for hours. Waiting until
the value has not changed for the whole time-out, by the observer's own monotonic clock, is always
right, but an observer that has just started would first have to wait.

So: the first look trusts the wall clock, but only to find that an owner is stale. From then on only
change counts.
"""

from __future__ import annotations

from collections.abc import Collection

from perdure.clock import Clock
from perdure.ids import Id

__all__ = ["HeartbeatWatch"]


class HeartbeatWatch:
    """Remembers the last heartbeat seen of each owner. One watch per observer."""

    def __init__(self, clock: Clock, lost_after: float) -> None:
        self._clock = clock
        self._lost_after = lost_after
        # owner -> (heartbeat, monotonic time of its first sight; None when it was stale then)
        self._seen: dict[Id, tuple[int, float | None]] = {}

    def is_stale(self, owner: Id, beat: int) -> bool:
        """Return whether `owner`, whose stored heartbeat is `beat` (ms), is to be given up."""
        seen = self._seen.get(owner)
        if seen is None:
            stale = self._clock.now() - beat >= self._lost_after * 1000
            self._seen[owner] = (beat, None if stale else self._clock.monotonic())
            return stale
        last_beat, since = seen
        if beat != last_beat:
            self._seen[owner] = (beat, self._clock.monotonic())
            return False
        return since is None or self._clock.monotonic() - since >= self._lost_after

    def keep_only(self, owners: Collection[Id]) -> None:
        """Forget everybody else, so that the dead of years take no memory."""
        for owner in self._seen.keys() - set(owners):
            del self._seen[owner]
