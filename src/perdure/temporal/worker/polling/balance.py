"""Which kind of workflow task poll may take the next slot: pure rules.

A worker with a cache polls two queues, its task queue and its own sticky one, out of one supply of
slots. If all slots of a busy worker went to polls of one kind, tasks of the other kind would wait
until a poll ends by itself, a minute later. So a kind takes a second slot only while the other one
polls too. A backlog of the sticky queue goes before new workflows, except for the one poll that
every kind keeps.
"""

from __future__ import annotations

__all__ = ["PollBalance"]


class PollBalance:
    """The polls under way, by kind, and the last known backlog of the sticky queue."""

    def __init__(self) -> None:
        self._polling = {False: 0, True: 0}
        self._backlog = 0

    def may_poll(self, *, sticky: bool) -> bool:
        """Whether a poll of this kind may begin now."""
        if self._polling[sticky] == 0:
            return True
        if self._polling[not sticky] == 0:
            return False
        return sticky or self._backlog - self._polling[True] <= 1

    def began(self, *, sticky: bool) -> None:
        """A poll is under way."""
        self._polling[sticky] += 1

    def ended(self, *, sticky: bool) -> None:
        """It is not any more."""
        self._polling[sticky] -= 1

    def heard(self, backlog: int) -> None:
        """The server said with a sticky poll that so many tasks wait there."""
        self._backlog = backlog
