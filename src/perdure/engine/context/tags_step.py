"""The step that changes the workflow's tags."""

from __future__ import annotations

from perdure.engine.context.branch import Branch
from perdure.engine.context.step import Step
from perdure.engine.database.tags import set_tags
from perdure.engine.history.cursor import Match, Replay
from perdure.engine.history.events import EventKind, TagsEvent
from perdure.engine.tags import Tags

__all__ = ["TagsStep"]


class TagsStep(Step[None]):
    """Replace the workflow's tags; they and the event are one transaction."""

    __slots__ = ("tags",)

    kind = EventKind.TAGS

    def __init__(self, branch: Branch, version: int, tags: Tags) -> None:
        super().__init__(branch, version)
        self.tags = tags

    async def perform(self, match: Match) -> None:
        branch = self.branch
        if isinstance(match, Replay):
            branch.pass_over(match.event)
            return
        run = branch.run
        now = run.now()
        event = TagsEvent(self.version, now, now, self.tags, joined=self.joined)
        await run.commit(
            set_tags(
                run.services.database,
                run.services.keys,
                run.lease.workflow_id,
                self.tags,
                lease=run.lease,
                key=branch.key(match.coordinate),
                event=event,
            )
        )
        branch.pass_over(event)
