"""The activity step: attempts and retries.

One attempt is one call of the user's function. A finished attempt is one commit: the output and
the workflow's state together, or the failure and when to try again. A short back-off is
waited for in memory, a long one by going to sleep; cancel and stop end both. The time-outs of an
attempt are in `watchdog`.
"""

from __future__ import annotations

from typing import Any, TypeVar

from perdure.engine.context.activity import ActivityContext
from perdure.engine.context.branch import Branch
from perdure.engine.context.step import Step
from perdure.engine.context.watchdog import bounded
from perdure.engine.definitions import Activity
from perdure.engine.errors import ActivityFailed
from perdure.engine.history.cursor import Match, Replay
from perdure.engine.history.events import (
    ActivityEvent,
    AttemptFailure,
    EventKind,
    kept_input,
)
from perdure.engine.history.failure import Failure
from perdure.engine.history.location import Coordinate, format_location
from perdure.engine.retry import RetryPolicy
from perdure.engine.suspension import is_from_outside
from perdure.errors import LimitExceeded, PayloadError

__all__ = ["ActivityStep"]

O = TypeVar("O")  # noqa: E741 - output


class ActivityStep(Step[O]):
    """Run an activity and record what it returned."""

    __slots__ = ("activity", "argument", "retry")

    kind = EventKind.ACTIVITY

    def __init__(
        self,
        branch: Branch,
        version: int,
        activity: Activity[Any, O],
        argument: Any,
        retry: RetryPolicy,
    ) -> None:
        super().__init__(branch, version, activity.name)
        self.activity = activity
        self.argument = argument
        self.retry = retry

    async def perform(self, match: Match) -> O:
        stored = self.activity.input_codec.encode(self.argument)
        if type(match) is not Replay:
            return await self._attempts(match.coordinate, stored, None)
        event = match.event
        assert isinstance(event, ActivityEvent)
        self.branch.check_interrupted(match.coordinate)
        self._warn_if_input_changed(event, stored)
        if event.output is not None:
            self.branch.pass_over(event)
            return self.activity.read_output(event.output)
        if event.retry_at is None:
            self.branch.pass_over(event)
            branch = self.branch
            branch.run.failures.note(branch, branch.key(match.coordinate))
            raise self._final_error(event)
        return await self._attempts(match.coordinate, stored, event)

    def _warn_if_input_changed(self, event: ActivityEvent, stored: bytes) -> None:
        if (event.input, event.input_digest) == kept_input(stored):
            return
        self.branch.run.services.log.warning(
            "an activity is replayed with another input than it was run with: "
            "the workflow's code is not deterministic, or it was changed without a version",
            activity=self.name,
            workflow_id=str(self.branch.run.lease.workflow_id),
        )

    def _final_error(self, event: ActivityEvent) -> ActivityFailed:
        failure = event.failure
        if failure is None:
            last = event.failures[-1]
            failure = Failure(type=last.kind, message=last.message)
        return ActivityFailed(event.name, event.attempts, failure)

    async def _attempts(
        self, coordinate: Coordinate, stored: bytes, event: ActivityEvent | None
    ) -> O:
        branch = self.branch
        run = branch.run
        while True:
            self.check_not_abandoned()
            if event is not None and event.retry_at is not None:
                await run.wait_until(event.retry_at, self, coordinate)
                if self.wants_cancel():
                    await branch.interrupt(coordinate)
            started = run.now()
            if event is None:
                kept, digest = kept_input(stored)
                event = ActivityEvent(
                    version=self.version,
                    created_at=started,
                    at=started,
                    name=self.activity.name,
                    input=kept,
                    input_digest=digest,
                    first_at=started,
                    joined=self.joined,
                )
            ctx = ActivityContext(branch, self, coordinate, event, started)
            try:
                value = await self._attempt(ctx, stored)
                output = self.activity.output_codec.encode(value)
                result = self.activity.read_output(output)
                state = ctx.changed_state()
            except BaseException as error:
                if is_from_outside(error):
                    raise
                await ctx.settled()
                event = await self._record_failure(coordinate, ctx.event, error, ctx)
                continue
            try:
                await self._record_output(coordinate, ctx, output, state)
            except LimitExceeded as error:
                # Each fits, but output and state together are more than one transaction.
                event = await self._record_failure(coordinate, ctx.event, error, ctx)
                continue
            return result

    async def _attempt(self, ctx: ActivityContext, stored: bytes) -> Any:
        """Call the user's function once, on a private copy of the input."""
        services = self.branch.run.services
        argument = self.activity.read_input(stored)
        retry = self.retry
        location = (
            format_location((*self.branch.location, ctx.coordinate))
            if services.tracing.enabled
            else ""
        )
        with services.tracing.activity(
            self.activity.name,
            workflow_name=ctx.workflow_name,
            workflow_id=ctx.workflow_id,
            ray_id=ctx.ray_id,
            location=location,
            attempt=ctx.attempt,
        ):
            coroutine = (
                self.activity.call(ctx, argument)
                if self.activity.is_async
                else services.executors.call(self.activity, ctx, argument)
            )
            return await bounded(coroutine, ctx, retry, services.clock)

    async def _record_output(
        self, coordinate: Coordinate, ctx: ActivityContext, output: bytes, state: bytes | None
    ) -> None:
        branch = self.branch
        run = branch.run
        now = run.now()
        event = ctx.event
        fresh = not event.attempts and not ctx.heartbeat_written
        done = ActivityEvent(
            version=event.version,
            created_at=event.created_at,
            at=now,
            name=event.name,
            input=event.input,
            input_digest=event.input_digest,
            output=output,
            attempts=ctx.attempt,
            failures=event.failures,
            progress=ctx.progress_bytes,
            first_at=event.first_at,
            joined=event.joined,
        )
        await ctx.settled()
        await run.write(branch.key(coordinate), done, state=state, fresh=fresh)
        if state is not None:
            run.state = state
        branch.pass_over(done)
        run.services.metrics.activity_finished(
            run.lease.name, event.name, (now - ctx.attempt_started) / 1000
        )

    async def _record_failure(
        self,
        coordinate: Coordinate,
        event: ActivityEvent,
        error: BaseException,
        ctx: ActivityContext,
    ) -> ActivityEvent:
        """Commit a failed attempt; raise `ActivityFailed` when it was the last."""
        branch = self.branch
        run = branch.run
        now = run.now()
        final = isinstance(error, PayloadError | LimitExceeded) or self.retry.gives_up(
            error, ctx.attempt, (now - event.first_at) / 1000
        )
        delay = 0.0 if final else self.retry.delay(ctx.attempt, run.services.random)
        failure = Failure.from_exception(error) if final else None
        failed = event.failed(
            AttemptFailure.from_exception(error, now),
            retry_at=None if final else now + round(delay * 1000),
            progress=ctx.progress_bytes,
            given_up=failure,
        )
        fresh = not event.attempts and not ctx.heartbeat_written
        await run.write(branch.key(coordinate), failed, fresh=fresh)
        run.services.metrics.activity_failed(run.lease.name, event.name, type(error).__name__)
        if failure is not None:
            branch.pass_over(failed)
            run.failures.note(branch, branch.key(coordinate))
            raise ActivityFailed(event.name, failed.attempts, failure) from error
        return failed
