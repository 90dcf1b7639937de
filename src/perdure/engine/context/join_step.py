"""Joins and closures: steps side by side.

Every member gets its place in the history first, in order; then all run, and none stops because
another one failed. Afterwards: the first error in order is raised; else, if a member sleeps, the
workflow sleeps until any of them can go on (the union of their wakes); else all results
are returned.

When a join ends with an error, which the code may catch, members that are unfinished by then are
abandoned: a replay does not run them on (they could turn a recorded outcome), it only replays what
they have; nor does a sleep among them move the time (`ctx.now()`), because nobody can tell any more
whether it was over. Of a closure, nothing else tells that it was unfinished, so its event is marked
before the error is raised. Of the other steps, history behind the join tells: an empty branch, also
marked as abandoned, if nothing else follows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from perdure.engine.context.branch import Branch
from perdure.engine.context.sleep_step import SleepStep
from perdure.engine.context.step import Step
from perdure.engine.database.rows import WakeConditions
from perdure.engine.definitions import Workflow
from perdure.engine.errors import ConcurrentStep, HistoryDiverged
from perdure.engine.history.cursor import Insertion, Match, Replay
from perdure.engine.history.events import BranchEvent, EventKind, JoinMark
from perdure.engine.history.location import Coordinate
from perdure.engine.suspension import RunAborted, Suspend, is_from_outside

if TYPE_CHECKING:
    from perdure.engine.context.workflow import WorkflowContext

__all__ = ["ClosureStep", "Member", "inline", "join"]

T = TypeVar("T")

Closure = Callable[["WorkflowContext"], Awaitable[T]]
Member = Step[T] | Closure[T]


class ClosureStep(Step[T]):
    """Run a function of the context in a branch of its own.

    That branch begins `at` the time before the join: what the other members reached by the time it
    starts is another matter in each run.
    """

    __slots__ = ("at", "closure", "event")

    kind = EventKind.BRANCH

    def __init__(self, branch: Branch, version: int, closure: Closure[T]) -> None:
        super().__init__(branch, version)
        self.at = branch.at
        self.closure = closure
        self.event: BranchEvent | None = None

    async def perform(self, match: Match) -> T:
        from perdure.engine.context.workflow import WorkflowContext

        branch = self.branch
        past = False
        if isinstance(match, Replay):
            event = match.event
            assert isinstance(event, BranchEvent)
            self.abandoned = event.abandoned
            past = not event.abandoned and (branch.past or branch.cursor.peek() is not None)
        else:
            now = branch.run.now()
            event = BranchEvent(self.version, now, now, joined=self.joined)
            await branch.run.write(branch.key(match.coordinate), event)
        self.event = event
        inner = branch.child(match.coordinate, self, past=past)
        inner.at = max(self.at, event.at)
        try:
            result = await self.closure(WorkflowContext(inner, self.version))
            inner.finish()
            return result
        except Suspend:
            # Where it waits is nothing that a replay could repeat if it is abandoned there.
            inner.at = branch.at
            raise
        finally:
            branch.rejoin(inner)

    async def abandon(self, coordinate: Coordinate) -> None:
        """Mark the branch at `coordinate` as left behind unfinished."""
        if self.event is None or self.frozen:
            return
        event = msgspec.structs.replace(self.event, abandoned=True)
        await self.branch.run.write(self.branch.key(coordinate), event, fresh=False)


def inline(branch: Branch, version: int, workflow: Workflow[Any, T], argument: Any) -> Step[T]:
    """Return the step that runs a workflow's function in a branch of this workflow."""
    stored = workflow.input_codec.encode(argument)

    async def body(ctx: WorkflowContext) -> T:
        result = await workflow.call(ctx, workflow.read_input(stored))
        return workflow.read_output(workflow.output_codec.encode(result))

    return ClosureStep(branch, version, body)


async def join(branch: Branch, version: int, members: Sequence[Member[Any]]) -> list[Any]:
    """Run all members side by side and return their results in order."""
    steps = [m if isinstance(m, Step) else ClosureStep(branch, version, m) for m in members]
    places = _place(branch, steps)
    has_more = branch.past or branch.cursor.peek() is not None
    for step, match in zip(steps, places, strict=True):
        inserted = isinstance(match, Insertion) and not match.gap
        step.abandoned = has_more and not inserted and not isinstance(step, ClosureStep)
        step.known_delivered = branch.cancel_delivered
    tasks = [
        asyncio.ensure_future(_perform(branch, step, match))
        for step, match in zip(steps, places, strict=True)
    ]
    try:
        outcomes = await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
    finally:
        branch.busy = False
    if branch.run.ending is None and any(outcome.failed for outcome in outcomes):
        for step, match, outcome in zip(steps, places, outcomes, strict=True):
            if outcome.waits and isinstance(step, ClosureStep):
                await step.abandon(match.coordinate)
        if any(
            outcome.waits and not isinstance(step, ClosureStep | SleepStep)
            for step, outcome in zip(steps, outcomes, strict=True)
        ):
            await _mark_end(branch, version)
    results = _conclude(branch, outcomes)
    branch.at = max(branch.at, *(step.reached for step in steps), 0)
    return results


async def _mark_end(branch: Branch, version: int) -> None:
    """Record that the code left a join with members unfinished, unless later history tells.

    Else a replay would let a listener among them run on, and take a signal that the code behind the
    join waits for.
    """
    event = branch.cursor.peek()
    if event is None:
        if branch.past or branch.frozen:
            return
        now = branch.run.now()
        event = BranchEvent(version, now, now, abandoned=True)
        await branch.run.write(branch.key(branch.cursor.current), event)
    elif not (isinstance(event, BranchEvent) and event.abandoned):
        return
    key = branch.key(branch.cursor.current)
    branch.cursor.advance(Replay(branch.cursor.current, event))
    branch.run.failures.note(branch, key)


def _place(branch: Branch, steps: Sequence[Step[Any]]) -> list[Match]:
    """Give every member its place, before anything runs."""
    places: list[Match] = []
    mark: JoinMark | None = None
    for step in steps:
        if step.branch is not branch:
            raise ConcurrentStep(branch.run.lease.workflow_id, branch.location)
        if places:
            branch.busy = False
        step.in_join = True
        step.joined = mark
        places.append(step.place())
        if mark is None:
            mark = JoinMark(places[0].coordinate, max(step.version for step in steps))
    return places


class _Outcome:
    __slots__ = ("error", "value")

    def __init__(self, value: Any = None, error: BaseException | None = None) -> None:
        self.value = value
        self.error = error

    @property
    def waits(self) -> bool:
        return isinstance(self.error, Suspend)

    @property
    def failed(self) -> bool:
        return self.error is not None and not isinstance(self.error, Suspend | RunAborted)


async def _perform(branch: Branch, step: Step[Any], match: Match) -> _Outcome:
    try:
        await branch.settle(step, match)
        return _Outcome(await step.perform(match))
    except BaseException as error:
        if is_from_outside(error):
            raise
        return _Outcome(error=error)


def _conclude(branch: Branch, outcomes: Sequence[_Outcome]) -> list[Any]:
    errors = [outcome.error for outcome in outcomes if outcome.error is not None]
    for error in errors:
        if isinstance(error, RunAborted):
            raise error
    for error in errors:
        if not isinstance(error, Suspend):
            raise error
    waits = [error for error in errors if isinstance(error, Suspend)]
    if waits:
        wake = WakeConditions.union([wait.wake for wait in waits])
        if wake.empty and not branch.frozen:
            raise branch.run.end(
                HistoryDiverged(
                    branch.location,
                    "a join that waits",
                    "events recorded after that join had failed",
                )
            )
        branch.suspended = Suspend(wake, "; ".join(dict.fromkeys(wait.reason for wait in waits)))
        raise branch.suspended
    return [outcome.value for outcome in outcomes]
