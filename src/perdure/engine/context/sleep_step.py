"""The sleep step: an instant, fixed when the step first runs."""

from __future__ import annotations

from perdure.engine.context.branch import Branch
from perdure.engine.context.step import Step
from perdure.engine.database.rows import WakeConditions
from perdure.engine.history.cursor import Match, Replay
from perdure.engine.history.events import EventKind, SleepEvent
from perdure.engine.suspension import Suspend

__all__ = ["SleepStep"]


class SleepStep(Step[None]):
    """Sleep for `seconds`, or until `deadline` (epoch ms) when that is given."""

    __slots__ = ("deadline", "seconds")

    kind = EventKind.SLEEP

    def __init__(
        self, branch: Branch, version: int, *, seconds: float = 0.0, deadline: int | None = None
    ) -> None:
        super().__init__(branch, version)
        self.seconds = seconds
        self.deadline = deadline

    async def perform(self, match: Match) -> None:
        branch = self.branch
        run = branch.run
        if isinstance(match, Replay):
            event = match.event
            assert isinstance(event, SleepEvent)
            branch.check_interrupted(match.coordinate)
            followed = self.abandoned if self.in_join else branch.cursor.peek() is not None
            if followed or branch.past:
                # It is over, whatever the wall clock says now: the code took further steps.
                self._end(event)
                return
            if self.frozen:
                # It was not over when the branch was left behind, and so it is in every replay.
                raise Suspend(WakeConditions(), "abandoned member of a join")
        else:
            now = run.now()
            deadline = self.deadline
            if deadline is None:
                deadline = now + round(self.seconds * 1000)
            event = SleepEvent(
                version=self.version,
                created_at=now,
                at=now,
                deadline=deadline,
                joined=self.joined,
            )
            await run.write(branch.key(match.coordinate), event)
        await run.wait_until(event.deadline, self, match.coordinate)
        self._end(event)

    def _end(self, event: SleepEvent) -> None:
        self.reached = max(event.at, event.deadline)
        if not self.in_join:
            self.branch.at = max(self.branch.at, self.reached)
