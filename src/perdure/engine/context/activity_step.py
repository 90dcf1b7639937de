"""The activity step: attempts, time-outs, heartbeats and retries.

One attempt is one call of the user's function. A finished attempt is one commit: the output and
the workflow's state together (defect D9), or the failure and when to try again. A short back-off is
waited for in memory, a long one by going to sleep; cancel and stop end both (defect D23).
"""

from __future__ import annotations

import asyncio
import types
from collections.abc import Coroutine, Generator
from typing import Any, Literal, TypeVar

from perdure.clock import Clock, Timer
from perdure.engine.context.activity import ActivityContext
from perdure.engine.context.branch import Branch
from perdure.engine.context.step import Step
from perdure.engine.database.records import WakeConditions
from perdure.engine.definitions import Activity
from perdure.engine.errors import ActivityFailed, ActivityTimedOut
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
from perdure.engine.suspension import Suspend, is_from_outside
from perdure.errors import LimitExceeded, PayloadError

__all__ = ["ActivityStep"]

Bound = Literal["timeout", "heartbeat_timeout"]

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
            if self.frozen:
                raise Suspend(WakeConditions(), "abandoned member of a join")
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
            return await _bounded(coroutine, ctx, retry, services.clock)

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


class _Watchdog:
    """Bounds one attempt: its whole time, and the silence between heartbeats.

    It cancels the task it was made in, once, and remembers that it was the one who did.
    """

    __slots__ = ("_beat", "_clock", "_end", "_silence", "_task", "_timeout", "_timer", "expired")

    def __init__(self, clock: Clock, timeout: float | None, silence: float | None) -> None:
        self._clock = clock
        self._silence = silence
        self._timeout = timeout
        self._end = None if timeout is None else clock.monotonic() + timeout
        self._beat = clock.monotonic()
        self._task = asyncio.current_task()
        self.expired: Bound | None = None
        self._timer: Timer | None = None
        self._arm()

    def _arm(self) -> None:
        ends = [] if self._end is None else [self._end]
        if self._silence is not None:
            ends.append(self._beat + self._silence)
        if ends:
            delay = max(min(ends) - self._clock.monotonic(), 0)
            self._timer = self._clock.call_later(delay, self._fire)

    def restart(self) -> None:
        """Begin anew: the attempt has waited for its place until now."""
        self._beat = self._clock.monotonic()
        if self._timeout is not None:
            self._end = self._beat + self._timeout

    def heard(self) -> None:
        """Note a heartbeat."""
        self._beat = self._clock.monotonic()

    def _fire(self) -> None:
        now = self._clock.monotonic()
        if self._end is not None and now >= self._end:
            self.expired = "timeout"
        elif self._silence is not None and now >= self._beat + self._silence:
            self.expired = "heartbeat_timeout"
        if self.expired is None:
            self._arm()
        elif self._task is not None:
            self._task.cancel()

    def disarm(self) -> None:
        """Stop watching."""
        if self._timer is not None:
            self._timer.cancel()

    def was_it(self) -> bool:
        """After it expired: say whether nobody else cancelled the task too."""
        return self._task is not None and self._task.uncancel() <= 0


async def _bounded(
    coroutine: Coroutine[Any, Any, O], ctx: ActivityContext, retry: RetryPolicy, clock: Clock
) -> O:
    """Run an attempt under its time-outs. One that never waits costs no timer."""
    try:
        pending = coroutine.send(None)
    except StopIteration as finished:
        result: O = finished.value
        return result
    timeout = retry.timeout
    if retry.total_timeout is not None:
        left = max(retry.total_timeout - (ctx.attempt_started - ctx.event.first_at) / 1000, 0)
        timeout = left if timeout is None else min(timeout, left)
    watchdog = _Watchdog(clock, timeout, retry.heartbeat_timeout)
    ctx.watchdog = watchdog
    try:
        return await _resume(coroutine, pending)
    except asyncio.CancelledError as cancelled:
        if watchdog.expired is None or not watchdog.was_it():
            raise
        limit = timeout if watchdog.expired == "timeout" else retry.heartbeat_timeout
        raise ActivityTimedOut(ctx.activity_name, limit or 0.0, watchdog.expired) from cancelled
    finally:
        watchdog.disarm()


@types.coroutine
def _resume(coroutine: Coroutine[Any, Any, O], pending: Any) -> Generator[Any, Any, O]:
    """Go on with a coroutine that was started by hand and has yielded `pending`."""
    while True:
        try:
            try:
                sent = yield pending
            except GeneratorExit:
                coroutine.close()
                raise
            except BaseException as error:
                pending = coroutine.throw(error)
            else:
                pending = coroutine.send(sent)
        except StopIteration as finished:
            result: O = finished.value
            return result
