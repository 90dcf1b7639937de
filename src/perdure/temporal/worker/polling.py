"""Polls for tasks: each holds a permit before it asks, and gives it away with the task.

A number of loops poll at the same time. With autoscaling the server's suggestions move that number
between its bounds. Stopping ends loops that wait for a permit at once; polls that are under way
are ended by the server (when it can) or cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, Protocol, TypeVar

from temporalio.api.taskqueue.v1 import PollerScalingDecision

from perdure.temporal.bridge.slots import Permit
from perdure.temporal.worker.metrics import PollMetrics
from perdure.temporal.worker.settings import PollerCounts

__all__ = ["Pace", "Pollers"]

_STOP = 1.0


class PolledTask(Protocol):
    """The answer of a poll; without a token it is empty."""

    @property
    def task_token(self) -> bytes: ...

    @property
    def poller_scaling_decision(self) -> PollerScalingDecision: ...


Task = TypeVar("Task", bound=PolledTask)


class Pace:
    """Lets through at most so many a second, evenly spaced."""

    def __init__(self, per_second: float | None) -> None:
        self._gap = 1 / per_second if per_second else 0.0
        self._next = 0.0

    async def wait(self) -> None:
        if not self._gap:
            return
        now = asyncio.get_running_loop().time()
        at = max(now, self._next)
        self._next = at + self._gap
        if at > now:
            await asyncio.sleep(at - now)


class Pollers(Generic[Task]):
    """All polls of one kind of one worker."""

    def __init__(
        self,
        counts: PollerCounts,
        *,
        reserve: Callable[[], Awaitable[Permit]],
        poll: Callable[[], Awaitable[Task]],
        deliver: Callable[[Task, Permit], None],
        failed: Callable[[Exception], None],
        metrics: PollMetrics,
    ) -> None:
        self._metrics = metrics
        self._counts = counts
        self._reserve = reserve
        self._poll = poll
        self._deliver = deliver
        self._failed = failed
        self._target = counts.initial
        self._stopping = False
        self._loops: set[asyncio.Task[None]] = set()
        self._polling: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        while len(self._loops) < self._target and not self._stopping:
            loop = asyncio.get_running_loop().create_task(self._run())
            self._loops.add(loop)
            loop.add_done_callback(self._ended)

    def stop(self) -> None:
        """Begin no new poll; polls under way go on."""
        self._stopping = True
        for loop in self._loops - self._polling:
            loop.cancel()

    async def ended(self, *, by_server: bool) -> None:
        """Wait until no poll is under way; `by_server` says that the server ends them."""
        if by_server and self._loops:
            await asyncio.wait(list(self._loops), timeout=_STOP)
        for loop in self._loops:
            loop.cancel()
        if self._loops:
            await asyncio.wait(list(self._loops))

    async def _run(self) -> None:
        me = asyncio.current_task()
        assert me is not None
        while not self._stopping and len(self._loops) <= self._target:
            permit = await self._reserve()
            self._polling.add(me)
            self._metrics.began()
            try:
                task = await self._poll()
            except BaseException:
                permit.release()
                raise
            finally:
                self._polling.discard(me)
                self._metrics.ended()
            if task.task_token or not self._stopping:
                self._metrics.answered(with_task=bool(task.task_token))
            self._rescale(task.poller_scaling_decision.poll_request_delta_suggestion)
            if task.task_token:
                self._deliver(task, permit)
            else:
                permit.release()

    def _rescale(self, delta: int) -> None:
        if delta and self._counts.minimum != self._counts.maximum:
            wanted = self._target + delta
            self._target = max(self._counts.minimum, min(self._counts.maximum, wanted))
            self.start()

    def _ended(self, loop: asyncio.Task[None]) -> None:
        self._loops.discard(loop)
        if loop.cancelled():
            return
        error = loop.exception()
        if isinstance(error, Exception) and not self._stopping:
            self._failed(error)
