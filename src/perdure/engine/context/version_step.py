"""Steps that let code change while workflows are under way."""

from __future__ import annotations

from perdure.engine.context.branch import Branch
from perdure.engine.context.step import Step
from perdure.engine.history.cursor import Match, Replay
from perdure.engine.history.events import EventKind, RemovedEvent, VersionCheckEvent

__all__ = ["RemovedStep", "VersionCheckStep"]


class VersionCheckStep(Step[int]):
    """Ask which version of the code this workflow began this part with; the answer is recorded."""

    __slots__ = ("inner", "requested")

    kind = EventKind.VERSION_CHECK

    def __init__(self, branch: Branch, version: int, requested: int) -> None:
        super().__init__(branch, version)
        self.requested = requested
        self.inner = requested

    def place(self) -> Match:
        self.placed = True
        branch = self.branch
        branch.check_may_run()
        answer = branch.cursor.check_version(self.requested, self.version)
        self.inner = answer.inner
        self.version = answer.version
        branch.busy = True
        branch.cursor.advance(answer.match)
        return answer.match

    async def perform(self, match: Match) -> int:
        branch = self.branch
        if isinstance(match, Replay):
            branch.pass_over(match.event)
        else:
            now = branch.run.now()
            event = VersionCheckEvent(self.version, now, now, self.inner, joined=self.joined)
            await branch.run.write(branch.key(match.coordinate), event)
            branch.pass_over(event)
        return self.inner


class RemovedStep(Step[None]):
    """Stand in the place of a step that the code no longer has."""

    __slots__ = ("removed_kind", "skip")

    kind = EventKind.REMOVED

    def __init__(
        self, branch: Branch, version: int, removed_kind: EventKind, name: str | None
    ) -> None:
        super().__init__(branch, version, name)
        self.removed_kind = removed_kind
        self.skip = False

    def place(self) -> Match:
        self.placed = True
        branch = self.branch
        branch.check_may_run()
        match = branch.cursor.compare_removed(self.removed_kind, self.name)
        branch.busy = True
        if match is None:
            # This history never had the step: nothing to stand in for, the cursor stays.
            self.skip = True
            event = branch.cursor.peek()
            assert event is not None
            return Replay(branch.cursor.current, event)
        branch.cursor.advance(match)
        return match

    async def perform(self, match: Match) -> None:
        branch = self.branch
        if self.skip:
            return
        if isinstance(match, Replay):
            branch.pass_over(match.event)
            return
        now = branch.run.now()
        event = RemovedEvent(
            self.version, now, now, self.removed_kind, self.name, joined=self.joined
        )
        await branch.run.write(branch.key(match.coordinate), event)
        branch.pass_over(event)
