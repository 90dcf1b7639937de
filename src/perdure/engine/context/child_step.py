"""Steps about other workflows started from this one.

Dispatching a child and its event are one transaction. Awaiting a child is an event of its own, with
the child's result or its death in it: what the parent once saw stays true, also when the child has
been pruned since.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from perdure.codec import encode
from perdure.engine import subjects
from perdure.engine.context.branch import Branch
from perdure.engine.context.step import Step
from perdure.engine.database.dispatch import Dispatch, dispatch_child
from perdure.engine.database.results import Outcome
from perdure.engine.database.rows import Phase, WakeConditions
from perdure.engine.database.steps import child_result
from perdure.engine.definitions import Workflow
from perdure.engine.errors import ChildCancelled, ChildFailed, ChildTerminated
from perdure.engine.history.cursor import Match, Replay
from perdure.engine.history.events import (
    ChildResultEvent,
    EventKind,
    SubWorkflowEvent,
    kept_input,
)
from perdure.engine.history.failure import Failure
from perdure.engine.history.location import Coordinate
from perdure.engine.suspension import Suspend
from perdure.engine.tags import TagMapping
from perdure.ids import Id

if TYPE_CHECKING:
    from perdure.engine.context.workflow import WorkflowContext

__all__ = ["CallStep", "Child", "ChildResultStep", "DispatchStep"]

O = TypeVar("O")  # noqa: E741 - output


class Child(Generic[O]):
    """A workflow started from this one. `id` is its id."""

    __slots__ = ("_ctx", "id", "workflow")

    def __init__(self, ctx: WorkflowContext, id: Id, workflow: Workflow[Any, O]) -> None:
        self._ctx = ctx
        self.id = id
        self.workflow = workflow

    def result(self) -> Step[O]:
        """Wait for the child's output.

        Raises `ChildFailed`, `ChildCancelled` or `ChildTerminated`.
        """
        return self._ctx.result_of(self)

    def signal(self, body: Any) -> Step[bool]:
        """Send the child a signal."""
        return self._ctx.signal(self.id, body)

    def __repr__(self) -> str:
        return f"<child {self.workflow.name} {self.id}>"


class _Dispatching(Step[O]):
    __slots__ = ("argument", "tags", "unique", "workflow")

    kind = EventKind.SUB_WORKFLOW
    workflow: Workflow[Any, Any]

    def __init__(
        self,
        branch: Branch,
        version: int,
        workflow: Workflow[Any, Any],
        argument: Any,
        tags: TagMapping | None,
        unique: bool | str,
    ) -> None:
        self.argument = workflow.write_input(argument)
        super().__init__(branch, version, workflow.name)
        self.workflow = workflow
        self.tags = dict(tags or {})
        self.unique = unique

    async def _dispatch(self, match: Match) -> Id:
        branch = self.branch
        if isinstance(match, Replay):
            recorded = match.event
            assert isinstance(recorded, SubWorkflowEvent)
            branch.pass_over(recorded)
            return Id(recorded.id)
        run = branch.run
        services = run.services
        now = run.now()
        name = self.workflow.name
        slot = None if services.worker is None else services.worker.reserve(name)
        request = Dispatch(
            id=services.new_id(),
            name=name,
            input=self.argument,
            tags=self.tags,
            ray_id=run.record.ray_id,
            parent=run.lease.workflow_id,
            unique=self.unique,
            prune=self.workflow.stored_prune,
            worker=None if slot is None else slot.worker_id,
        )
        kept, _ = kept_input(self.argument)
        event = SubWorkflowEvent(
            version=self.version,
            created_at=now,
            at=now,
            name=request.name,
            id=bytes(request.id),
            tags=self.tags,
            input=kept,
            joined=self.joined,
        )
        with slot or nullcontext():
            outcome = await run.commit(
                dispatch_child(
                    services.database,
                    services.keys,
                    run.lease,
                    branch.key(match.coordinate),
                    event,
                    request,
                    now,
                )
            )
            services.announce_new(name, outcome, slot)
        branch.pass_over(event)
        services.metrics.dispatched(request.name, (run.now() - now) / 1000, run.lease.name)
        return outcome.id


class DispatchStep(_Dispatching[Child[O]]):
    """Start a child and go on; gives the `Child`."""

    __slots__ = ("ctx",)

    def __init__(self, ctx: WorkflowContext, *args: Any) -> None:
        super().__init__(*args)
        self.ctx = ctx

    async def perform(self, match: Match) -> Child[O]:
        return Child(self.ctx, await self._dispatch(match), self.workflow)


class CallStep(_Dispatching[O]):
    """Start a child and wait for its output; the result lies inside the dispatch's event."""

    __slots__ = ()

    async def perform(self, match: Match) -> O:
        branch = self.branch
        coordinate = match.coordinate
        child = await self._dispatch(match)
        recorded = branch.inner_event(coordinate)
        if isinstance(recorded, ChildResultEvent):
            return self._outcome(recorded, coordinate)
        branch.check_interrupted(coordinate)
        while True:
            result = await await_child(self, child, branch.inner_key(coordinate))
            if result is not None:
                return self._outcome(result, coordinate)
            await branch.interrupt(coordinate)

    def _outcome(self, event: ChildResultEvent, coordinate: Coordinate) -> O:
        workflow: Workflow[Any, O] = self.workflow
        return outcome_of(self.branch, workflow, event, self.branch.inner_key(coordinate))


class ChildResultStep(Step[O]):
    """Wait for the output of a workflow started earlier."""

    __slots__ = ("child", "workflow")

    kind = EventKind.CHILD_RESULT

    def __init__(self, branch: Branch, version: int, child: Id, workflow: Workflow[Any, O]) -> None:
        super().__init__(branch, version)
        self.child = child
        self.workflow = workflow

    async def perform(self, match: Match) -> O:
        branch = self.branch
        key = branch.key(match.coordinate)
        if isinstance(match, Replay):
            event = match.event
            assert isinstance(event, ChildResultEvent)
            return outcome_of(branch, self.workflow, event, key)
        while True:
            result = await await_child(self, self.child, key)
            if result is not None:
                return outcome_of(branch, self.workflow, result, key)
            await branch.settle(self, match)


async def await_child(step: Step[Any], child: Id, key: bytes) -> ChildResultEvent | None:
    """Wait until a child is closed and record how it ended; None when a cancel came first."""
    run = step.branch.run
    services = run.services
    while True:
        beat = run.pulse.next()
        now = run.now()
        recorded: list[ChildResultEvent] = []

        def make_event(outcome: Outcome, now: int = now) -> ChildResultEvent:
            event = ChildResultEvent(
                version=step.version,
                created_at=now,
                at=now,
                child=bytes(child),
                phase=outcome.phase,
                output=outcome.output,
                failure=outcome.failure,
                joined=step.joined,
            )
            recorded[:] = [event]  # noqa: B023 - read in this very turn of the loop
            return event

        step.check_not_abandoned()
        outcome = await run.commit(
            child_result(services.database, services.keys, run.lease, key, child, make_event)
        )
        if outcome is not None:
            return recorded[0]
        if step.wants_cancel():
            return None
        wake = WakeConditions(children=(child,))
        run.leave_if_stopping(wake)
        run.hear(subjects.closed(child))
        if not await run.linger(beat):
            raise Suspend(wake, f"waiting for workflow {child}")


def outcome_of(
    branch: Branch, workflow: Workflow[Any, O], event: ChildResultEvent, key: bytes
) -> O:
    """Return the child's output, or raise what became of it, as recorded at `key`."""
    branch.pass_over(event)
    child = Id(event.child)
    if event.phase == Phase.COMPLETE:
        return workflow.read_output(event.output or encode(None))
    branch.run.failures.note(branch, key)
    match event.phase:
        case Phase.CANCELLED:
            raise ChildCancelled(child, "" if event.failure is None else event.failure.message)
        case Phase.TERMINATED:
            raise ChildTerminated(child, "" if event.failure is None else event.failure.message)
    raise ChildFailed(child, event.failure or Failure(type="Unknown", message="no reason stored"))
