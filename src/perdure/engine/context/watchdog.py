"""The bounds of one attempt of an activity: its whole time, and the silence between heartbeats.

An attempt runs in the task of its step, so a bound that is exceeded cancels that task. Whether the
cancellation is ours or somebody else's is told apart by counting requests, as `asyncio.timeout`
does.
"""

from __future__ import annotations

import asyncio
import types
from collections.abc import Coroutine, Generator
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from perdure.clock import Clock, Timer
from perdure.engine.errors import ActivityTimedOut
from perdure.engine.retry import RetryPolicy

if TYPE_CHECKING:
    from perdure.engine.context.activity import ActivityContext

__all__ = ["Watchdog", "bounded"]

O = TypeVar("O")  # noqa: E741 - output

Bound = Literal["timeout", "heartbeat_timeout"]


class Watchdog:
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


async def bounded(
    coroutine: Coroutine[Any, Any, O], ctx: ActivityContext, retry: RetryPolicy, clock: Clock
) -> O:
    """Run an attempt under its time-outs. One that never waits costs no timer.

    Raises `ActivityTimedOut`, and what the attempt raises.
    """
    try:
        pending = coroutine.send(None)
    except StopIteration as finished:
        result: O = finished.value
        return result
    timeout = retry.timeout
    if retry.total_timeout is not None:
        left = max(retry.total_timeout - (ctx.attempt_started - ctx.event.first_at) / 1000, 0)
        timeout = left if timeout is None else min(timeout, left)
    watchdog = Watchdog(clock, timeout, retry.heartbeat_timeout)
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
