"""The only source of time in perdure, so that tests and simulations can own time.

Three different questions get three different answers, and mixing them up is a classic bug:

* `now()` is the wall clock, in whole milliseconds since 1970 (UTC). It may jump in both directions.
  Only stored deadlines and timestamps for people are made from it.
* `monotonic()` is in seconds and never goes back. Durations, ages and time-outs inside one process
  are made from it; it means nothing to another process.
* `call_later` and `sleep` follow the monotonic clock.

`SystemClock` is real time on the running asyncio loop. `VirtualClock` never moves by itself: a test
moves it, and timers fire in order of their due time. A clock that jumps ahead whenever all tasks
are blocked needs control of the event loop: `perdure.testing.simulation` has one.

`wait` bounds waiting without ever cancelling what is waited for. It exists because
`asyncio.wait_for` cancels its argument, and a cancelled commit is a commit with unknown outcome.
"""

from __future__ import annotations

import asyncio
import heapq
import time
from collections.abc import Callable
from typing import Any, Final, Protocol

__all__ = ["SYSTEM_CLOCK", "Clock", "SystemClock", "Timer", "VirtualClock", "wait", "wait_event"]


class Timer(Protocol):
    """A pending callback."""

    def cancel(self) -> None:
        """Stop it from firing. Harmless when it already fired or was cancelled."""


class Clock(Protocol):
    """What every part of perdure asks for time."""

    def now(self) -> int:
        """Return the wall clock in milliseconds since 1970 (UTC). It may jump either way."""

    def monotonic(self) -> float:
        """Return seconds since an arbitrary point; never goes back."""

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        """Call `callback` on the running loop, `seconds` of monotonic time from now."""

    async def sleep(self, seconds: float) -> None:
        """Wait for `seconds` of monotonic time; zero or less only lets other tasks run."""


class SystemClock:
    """Real time, with timers on the running asyncio loop."""

    __slots__ = ()

    def now(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        return asyncio.get_running_loop().call_later(seconds, callback)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(seconds, 0))


SYSTEM_CLOCK: Final[Clock] = SystemClock()


class _VirtualTimer:
    __slots__ = ("callback", "due", "order")

    def __init__(self, due: int, order: int, callback: Callable[[], object]) -> None:
        self.due = due
        self.order = order
        self.callback: Callable[[], object] | None = callback

    def __lt__(self, other: _VirtualTimer) -> bool:
        return (self.due, self.order) < (other.due, other.order)

    def cancel(self) -> None:
        self.callback = None


class VirtualClock:
    """Time for tests: it stands still until it is told to move.

    Timers due at the same moment fire in the order in which they were set. An exception in a
    timer's callback reaches whoever moved the clock. Time is kept in whole nanoseconds, so many
    small steps add up exactly.
    """

    def __init__(self, start_ms: int = 1_700_000_000_000) -> None:
        self._wall_start = start_ms * 1_000_000
        self._elapsed = 0
        self._timers: list[_VirtualTimer] = []
        self._order = 0

    def now(self) -> int:
        return (self._wall_start + self._elapsed) // 1_000_000

    def monotonic(self) -> float:
        return self._elapsed / 1e9

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        self._order += 1
        # A rest of rounding is a wait too: one of no length would come back without end.
        delay = max(round(seconds * 1e9), 1) if seconds > 0 else 0
        due = self._elapsed + delay
        timer = _VirtualTimer(due, self._order, callback)
        heapq.heappush(self._timers, timer)
        return timer

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def wake() -> None:
            if not waiter.done():
                waiter.set_result(None)

        timer = self.call_later(seconds, wake)
        try:
            await waiter
        finally:
            timer.cancel()

    def next_timer_in(self) -> float | None:
        """Return the seconds until the next timer fires, or None when there is none."""
        while self._timers and self._timers[0].callback is None:
            heapq.heappop(self._timers)
        return (self._timers[0].due - self._elapsed) / 1e9 if self._timers else None

    def jump(self, ms: int) -> None:
        """Move only the wall clock, forward or (negative) back. No timer fires."""
        self._wall_start += ms * 1_000_000

    def advance(self, ms: float) -> None:
        """Move both clocks forward by `ms`, firing timers on the way, each at its due time."""
        end = self._end(ms)
        while self._fire_next(end):
            pass
        self._elapsed = end

    async def advance_async(self, ms: float, *, turns: int = 50) -> None:
        """Like `advance`, but let the loop run before the first timer and after each moment.

        `turns` is how many turns the loop gets each time: enough for chains of tasks to settle and
        set their next timers. Work in threads is not waited for.
        """
        end = self._end(ms)
        await _let_run(turns)
        while self._fire_next(end):
            due = self._elapsed
            while self._fire_next(due):
                pass
            await _let_run(turns)
        self._elapsed = end
        await _let_run(turns)

    def _end(self, ms: float) -> int:
        if ms < 0:
            raise ValueError(
                "a clock cannot advance by a negative time; use jump for the wall clock"
            )
        return self._elapsed + round(ms * 1e6)

    def _fire_next(self, end: int) -> bool:
        """Fire the earliest timer due by `end`; return whether there was one."""
        while self._timers and self._timers[0].due <= end:
            timer = heapq.heappop(self._timers)
            callback, timer.callback = timer.callback, None
            if callback is not None:
                self._elapsed = timer.due
                callback()
                return True
        return False


async def _let_run(turns: int) -> None:
    for _ in range(turns):
        await asyncio.sleep(0)


async def wait(clock: Clock, *futures: asyncio.Future[Any], timeout: float | None) -> bool:
    """Wait until any of `futures` is done; return False when `timeout` seconds passed first.

    Nothing is ever cancelled, also not when the waiting task itself is cancelled: the futures go
    on and the caller decides. Results and errors stay in the futures. `timeout=None` waits without
    end.
    """
    if any(future.done() for future in futures):
        return True
    if timeout is not None and timeout <= 0:
        return False
    waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def wake(_done: object = None) -> None:
        if not waiter.done():
            waiter.set_result(None)

    timer = None if timeout is None else clock.call_later(timeout, wake)
    for future in futures:
        future.add_done_callback(wake)
    try:
        await waiter
    finally:
        if timer is not None:
            timer.cancel()
        for future in futures:
            future.remove_done_callback(wake)
    return any(future.done() for future in futures)


async def wait_event(clock: Clock, event: asyncio.Event, *, timeout: float | None) -> bool:
    """Wait until `event` is set; return False when `timeout` seconds passed first."""
    if event.is_set():
        return True
    waiting = asyncio.ensure_future(event.wait())
    try:
        await wait(clock, waiting, timeout=timeout)
    finally:
        waiting.cancel()
    return event.is_set()
