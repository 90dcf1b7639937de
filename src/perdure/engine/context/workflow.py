"""What workflow code sees: every durable call is a method that returns a step."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from random import Random
from typing import Any, Literal, TypeVar, Unpack, overload

from perdure.engine.context.activity_step import ActivityStep
from perdure.engine.context.branch import Branch
from perdure.engine.context.child_step import CallStep, Child, ChildResultStep, DispatchStep
from perdure.engine.context.join_step import ClosureStep, Member, inline, join
from perdure.engine.context.listen_step import BoundedListenStep, ListenStep
from perdure.engine.context.loop_step import Break, Continue, LoopStep
from perdure.engine.context.send_step import MessageStep, SignalStep
from perdure.engine.context.sleep_step import SleepStep
from perdure.engine.context.step import Step
from perdure.engine.context.tags_step import TagsStep
from perdure.engine.context.version_step import RemovedStep, VersionCheckStep
from perdure.engine.definitions import (
    Activity,
    Signal,
    Workflow,
    check_name,
    message_and_body,
    require,
    signal_and_body,
    signal_of,
)
from perdure.engine.errors import InvalidOption, InvalidVersion
from perdure.engine.history.events import EventKind
from perdure.engine.history.location import format_location
from perdure.engine.instants import Instant, to_datetime, to_milliseconds
from perdure.engine.log import WorkflowLogger
from perdure.engine.retry import RetryOptions, seconds
from perdure.engine.tags import TagMapping
from perdure.ids import Id

__all__ = ["WorkflowContext"]

I = TypeVar("I")  # noqa: E741 - input
O = TypeVar("O")  # noqa: E741 - output
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
E = TypeVar("E")
S = TypeVar("S")
T = TypeVar("T")

Duration = float | timedelta
Kind = type[T] | Signal[T]
Removable = Literal[
    "activity",
    "signal_send",
    "message_send",
    "sub_workflow",
    "child_result",
    "loop",
    "sleep",
    "branch",
    "signals",
    "tags",
    "version_check",
]


class WorkflowContext:
    """The workflow's side of the engine.

    Steps are durable: `await ctx.activity(...)` runs once and is replayed ever after. Between steps
    code must decide by nothing but its input and what steps returned; for time, randomness and ids
    use `now`, `random` and `uuid`.
    """

    __slots__ = ("_branch", "_log", "version")

    def __init__(self, branch: Branch, version: int = 1) -> None:
        self._branch = branch
        self._log: WorkflowLogger | None = None
        self.version = version

    # -- facts

    @property
    def workflow_id(self) -> Id:
        """This workflow's id."""
        return self._branch.run.lease.workflow_id

    @property
    def name(self) -> str:
        """This workflow's name."""
        return self._branch.run.lease.name

    @property
    def ray_id(self) -> Id:
        """The trace id inherited from whoever dispatched this workflow."""
        return self._branch.run.record.ray_id

    @property
    def parent_id(self) -> Id | None:
        """The workflow that dispatched this one, if one did."""
        return self._branch.run.record.parent

    @property
    def created_at(self) -> datetime:
        """When this workflow was dispatched (UTC)."""
        return to_datetime(self._branch.run.record.created_at)

    @property
    def log(self) -> WorkflowLogger:
        """A logger that is silent while recorded steps are replayed."""
        if self._log is None:
            branch = self._branch
            self._log = WorkflowLogger(
                self.name,
                self.workflow_id,
                self.ray_id,
                replaying=lambda: branch.cursor.peek() is not None,
                location=lambda: format_location(branch.location),
            )
        return self._log

    # -- plain calls that are the same on every replay

    def now(self) -> datetime:
        """Return the time of the latest step (UTC)."""
        return to_datetime(self._branch.at)

    def random(self) -> Random:
        """Return this branch's random generator; seeded by the workflow's id and the place."""
        return self._branch.random()

    def uuid(self) -> uuid.UUID:
        """Return a random UUID, the same on every replay."""
        return uuid.UUID(int=self._branch.random().getrandbits(128), version=4)

    # -- activities

    @overload
    def activity(
        self, activity: Activity[None, O], /, **retry: Unpack[RetryOptions]
    ) -> Step[O]: ...
    @overload
    def activity(
        self, activity: Activity[I, O], input: I, /, **retry: Unpack[RetryOptions]
    ) -> Step[O]: ...
    def activity(
        self, activity: Activity[Any, O], input: Any = None, /, **retry: Unpack[RetryOptions]
    ) -> Step[O]:
        """Run an activity. Keywords override its retry policy for this call (see `RetryPolicy`).

        Raises `ActivityFailed` when its last attempt failed.
        """
        require(Activity, activity)
        return ActivityStep(
            self._branch, self.version, activity, input, activity.retry.override(retry)
        )

    # -- signals and messages

    @overload
    def listen(self, a: Kind[A], /) -> Step[A]: ...
    @overload
    def listen(self, a: Kind[A], b: Kind[B], /) -> Step[A | B]: ...
    @overload
    def listen(self, a: Kind[A], b: Kind[B], c: Kind[C], /) -> Step[A | B | C]: ...
    @overload
    def listen(self, *kinds: Kind[Any]) -> Step[Any]: ...
    @overload
    def listen(
        self, a: Kind[A], /, *, timeout: Duration | None = ..., until: Instant | None = ...
    ) -> Step[A | None]: ...
    @overload
    def listen(
        self,
        a: Kind[A],
        b: Kind[B],
        /,
        *,
        timeout: Duration | None = ...,
        until: Instant | None = ...,
    ) -> Step[A | B | None]: ...
    @overload
    def listen(
        self,
        a: Kind[A],
        b: Kind[B],
        c: Kind[C],
        /,
        *,
        timeout: Duration | None = ...,
        until: Instant | None = ...,
    ) -> Step[A | B | C | None]: ...
    @overload
    def listen(
        self, *kinds: Kind[Any], timeout: Duration | None = ..., until: Instant | None = ...
    ) -> Step[Any]: ...
    def listen(
        self,
        *kinds: Kind[Any],
        timeout: Duration | None = None,
        until: Instant | None = None,
    ) -> Step[Any]:
        """Receive one signal of any of the given kinds, oldest first in commit order.

        With `timeout` or `until` the result is None when nothing came in time.
        """
        return self._listening(kinds, None, timeout, until)

    def listen_many(
        self,
        *kinds: Kind[T],
        n: int,
        timeout: Duration | None = None,
        until: Instant | None = None,
    ) -> Step[list[T]]:
        """Receive 1 to `n` signals in one step; with a bound in time possibly none."""
        if n < 1:
            raise InvalidOption("n", n, "at least 1")
        return self._listening(kinds, n, timeout, until)

    def _listening(
        self,
        kinds: Sequence[Kind[Any]],
        limit: int | None,
        timeout: Duration | None,
        until: Instant | None,
    ) -> Step[Any]:
        if not kinds:
            raise InvalidOption("signals", kinds, "name at least one kind of signal")
        signals = [signal_of(kind) for kind in kinds]
        if timeout is None and until is None:
            return ListenStep(self._branch, self.version, signals, limit)
        if timeout is not None and until is not None:
            raise InvalidOption("timeout", timeout, "give either timeout or until, not both")
        if until is not None:
            return BoundedListenStep(
                self._branch, self.version, signals, limit, deadline=to_milliseconds(until)
            )
        bound = seconds(timeout or 0.0, "timeout")
        return BoundedListenStep(self._branch, self.version, signals, limit, seconds=bound)

    def signal(self, target: Id | Child[Any], body: Any) -> Step[bool]:
        """Send a signal to a workflow, exactly once.

        Raises `WorkflowNotFound` and `WorkflowFinished`.
        """
        signal, value = signal_and_body(body)
        workflow_id = target.id if isinstance(target, Child) else target
        return SignalStep(self._branch, self.version, signal, value, target=workflow_id)

    def signal_tagged(
        self,
        workflow: Workflow[Any, Any] | str,
        tags: TagMapping,
        body: Any,
        *,
        missing_ok: bool = False,
    ) -> Step[bool]:
        """Send a signal to the first open workflow of that name with these tags.

        With `missing_ok` the result says whether there was one; else `WorkflowNotFound` is raised.
        """
        signal, value = signal_and_body(body)
        name = check_name("workflow", workflow) if isinstance(workflow, str) else workflow.name
        return SignalStep(
            self._branch,
            self.version,
            signal,
            value,
            target_name=name,
            target_tags=dict(tags),
            missing_ok=missing_ok,
        )

    def message(self, body: Any, topic: str = "") -> Step[None]:
        """Publish a message, at most once: it is recorded first and never sent again."""
        message, value = message_and_body(body)
        return MessageStep(self._branch, self.version, message, value, topic)

    # -- other workflows

    @overload
    def dispatch(
        self,
        workflow: Workflow[None, O],
        /,
        *,
        tags: TagMapping | None = ...,
        unique: bool | str = ...,
    ) -> Step[Child[O]]: ...
    @overload
    def dispatch(
        self,
        workflow: Workflow[I, O],
        input: I,
        /,
        *,
        tags: TagMapping | None = ...,
        unique: bool | str = ...,
    ) -> Step[Child[O]]: ...
    def dispatch(
        self,
        workflow: Workflow[Any, O],
        input: Any = None,
        /,
        *,
        tags: TagMapping | None = None,
        unique: bool | str = False,
    ) -> Step[Child[O]]:
        """Start another workflow and go on; await `child.result()` for its output."""
        require(Workflow, workflow)
        return DispatchStep(self, self._branch, self.version, workflow, input, tags, unique)

    @overload
    def call(
        self,
        workflow: Workflow[None, O],
        /,
        *,
        tags: TagMapping | None = ...,
        unique: bool | str = ...,
    ) -> Step[O]: ...
    @overload
    def call(
        self,
        workflow: Workflow[I, O],
        input: I,
        /,
        *,
        tags: TagMapping | None = ...,
        unique: bool | str = ...,
    ) -> Step[O]: ...
    def call(
        self,
        workflow: Workflow[Any, O],
        input: Any = None,
        /,
        *,
        tags: TagMapping | None = None,
        unique: bool | str = False,
    ) -> Step[O]:
        """Start another workflow and wait for its output.

        Raises `ChildFailed`, `ChildCancelled` or `ChildTerminated`.
        """
        require(Workflow, workflow)
        return CallStep(self._branch, self.version, workflow, input, tags, unique)

    def result_of(self, child: Child[O]) -> Step[O]:
        """Wait for a child started earlier; the same as `child.result()`."""
        return ChildResultStep(self._branch, self.version, child.id, child.workflow)

    def inline(self, workflow: Workflow[I, O], input: I = None, /) -> Step[O]:  # type: ignore[assignment]
        """Run a workflow's function inside this one: no id of its own, shared state and fate."""
        require(Workflow, workflow)
        return inline(self._branch, self.version, workflow, input)

    # -- time

    def sleep(self, duration: Duration) -> Step[None]:
        """Sleep for a time. A long sleep costs no memory."""
        return SleepStep(self._branch, self.version, seconds=seconds(duration, "duration"))

    def sleep_until(self, instant: Instant) -> Step[None]:
        """Sleep until an instant; one that has passed is no wait."""
        return SleepStep(self._branch, self.version, deadline=to_milliseconds(instant))

    # -- structure

    @overload
    def loop(
        self,
        body: Callable[[WorkflowContext, S], Awaitable[Break[B] | Continue[S] | None]],
        state: S,
        *,
        commit_every: int = ...,
    ) -> Step[B]: ...
    @overload
    def loop(
        self,
        body: Callable[[WorkflowContext, None], Awaitable[Break[B] | Continue[None] | None]],
        *,
        commit_every: int = ...,
    ) -> Step[B]: ...
    def loop(
        self,
        body: Callable[[WorkflowContext, Any], Awaitable[Any]],
        state: Any = None,
        *,
        commit_every: int = 20,
    ) -> Step[Any]:
        """Repeat `body(ctx, state)` until it returns `Break(value)`; gives that value.

        Changes to `state` in place are kept; `Continue(state)` replaces it. Steps of finished
        iterations leave the history every `commit_every` iterations.
        """
        if commit_every < 1:
            raise InvalidOption("commit_every", commit_every, "at least 1")
        return LoopStep(self._branch, self.version, body, state, commit_every)

    def closure(self, closure: Callable[[WorkflowContext], Awaitable[T]]) -> Step[T]:
        """Run a function of the context in a branch of its own."""
        return ClosureStep(self._branch, self.version, closure)

    @overload
    async def join(self, a: Member[A], b: Member[B], /) -> tuple[A, B]: ...
    @overload
    async def join(self, a: Member[A], b: Member[B], c: Member[C], /) -> tuple[A, B, C]: ...
    @overload
    async def join(
        self, a: Member[A], b: Member[B], c: Member[C], d: Member[D], /
    ) -> tuple[A, B, C, D]: ...
    @overload
    async def join(
        self, a: Member[A], b: Member[B], c: Member[C], d: Member[D], e: Member[E], /
    ) -> tuple[A, B, C, D, E]: ...
    @overload
    async def join(self, *members: Member[Any]) -> tuple[Any, ...]: ...
    async def join(self, *members: Member[Any]) -> tuple[Any, ...]:
        """Run steps and closures side by side and return their results in order.

        None is stopped by another's error; afterwards the first error in order is raised.
        """
        return tuple(await join(self._branch, self.version, members))

    async def join_all(self, members: Sequence[Member[T]]) -> list[T]:
        """Like `join`, for any number of members of one type."""
        return await join(self._branch, self.version, members)

    # -- changing code under running workflows

    def v(self, version: int) -> WorkflowContext:
        """Return this context for steps of a later version (absolute): `ctx.v(2).activity(...)`.

        In a history written before the change such a step is inserted where it stands.
        """
        if version < self.version:
            raise InvalidVersion(version, self.version)
        return WorkflowContext(self._branch, version)

    def check_version(self, latest: int) -> Step[int]:
        """Return the version this part of the workflow began with: `latest` for new workflows."""
        return VersionCheckStep(self._branch, self.version, latest)

    def removed(self, kind: Removable, name: str | None = None) -> Step[None]:
        """Stand in for a step that was deleted from the code, so that old histories still fit."""
        try:
            event_kind = EventKind[kind.upper()]
        except KeyError:
            raise InvalidOption("kind", kind, "the kind of a step, such as 'activity'") from None
        return RemovedStep(self._branch, self.version, event_kind, name)

    def set_tags(self, tags: TagMapping) -> Step[None]:
        """Replace this workflow's tags."""
        return TagsStep(self._branch, self.version, dict(tags))
