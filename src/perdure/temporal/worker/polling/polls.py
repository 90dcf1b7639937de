"""Polls for tasks: each holds a permit before it asks, and gives it away with the task.

A number of loops poll at the same time, as many as the scaler wants. Refused polls are tried again
for as long as the rules of `connection.retry` say; what they call final ends the loop and is
reported, and so is a fault of our own. Stopping ends loops that wait (for a slot, for their turn,
or to try again) at once; polls that are under way are ended by the server (when it can) or
cancelled, but a task whose poll was answered before is delivered. Invariant: a permit that a loop
holds is either given away with a task or released, however the loop ends.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Generic, Protocol, TypeVar, cast

from google.protobuf.message import Message
from temporalio.api.taskqueue.v1 import PollerScalingDecision

from perdure.core.rate_limit import RateLimit
from perdure.temporal.connection.retry import POLLS, Retries
from perdure.temporal.sdk_errors import RPCError
from perdure.temporal.slots.dealer import Permit
from perdure.temporal.worker.diagnostics.metrics import PollMetrics
from perdure.temporal.worker.polling.scaling import PollScaler
from perdure.temporal.worker.settings import PollerCounts

__all__ = ["Pace", "Pollers", "Turns"]

_STOP = 1.0


class PolledTask(Protocol):
    """The answer of a poll; without a token it is empty."""

    @property
    def task_token(self) -> bytes: ...

    @property
    def poller_scaling_decision(self) -> PollerScalingDecision: ...


Task = TypeVar("Task", bound=PolledTask)
_Answer_contra = TypeVar("_Answer_contra", bound=PolledTask, contravariant=True)


class Pace:
    """Lets through at most so many a second, evenly spaced."""

    def __init__(self, per_second: float | None) -> None:
        self._limit = RateLimit(per_second) if per_second is not None else None

    async def wait(self) -> None:
        if self._limit is not None and (delay := self._limit.reserve(_now())) > 0:
            await asyncio.sleep(delay)


class Turns(Protocol[_Answer_contra]):
    """Who may poll next, where polls of several kinds share their slots."""

    async def wait(self) -> None:
        """Until it is this kind's turn."""

    def is_mine(self) -> bool:
        """Whether it is this kind's turn now."""

    def began(self) -> None:
        """A poll of this kind is under way."""

    def ended(self, answer: _Answer_contra | None) -> None:
        """It is over, with this answer if it has one."""


class _Always:
    """Nobody to share with."""

    async def wait(self) -> None:
        """It is always our turn."""

    def is_mine(self) -> bool:
        return True

    def began(self) -> None:
        """Nobody asks."""

    def ended(self, answer: object) -> None:
        """Nobody asks."""


class Pollers(Generic[Task]):
    """All polls of one kind of one worker."""

    def __init__(
        self,
        counts: PollerCounts,
        *,
        reserve: Callable[[], Awaitable[Permit]],
        poll: Callable[[float], Awaitable[Task]],
        deliver: Callable[[Task, Permit], None],
        failed: Callable[[Exception], None],
        retried: Callable[[Retries, RPCError], None],
        metrics: PollMetrics,
        turns: Turns[Task] | None = None,
    ) -> None:
        """`poll` asks the server once, for so many seconds at most, and raises `RPCError`."""
        self._scaler = PollScaler(counts)
        self._metrics = metrics
        self._reserve = reserve
        self._poll = poll
        self._deliver = deliver
        self._failed = failed
        self._retried = retried
        self._turns: Turns[Task] = turns or _Always()
        self._stopping = False
        self._loops: set[asyncio.Task[None]] = set()
        self._polling: set[asyncio.Task[None]] = set()

    @property
    def under_way(self) -> int:
        """How many polls wait for the server."""
        return len(self._polling)

    def start(self, *, suggests: bool = False) -> None:
        """Poll as often as is wanted; `suggests` says that the server is known to say how often."""
        if suggests:
            self._scaler.suggests = True
        self._fill()

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

    def _fill(self) -> None:
        while len(self._loops) < self._scaler.target and not self._stopping:
            loop = asyncio.get_running_loop().create_task(self._run())
            self._loops.add(loop)
            loop.add_done_callback(self._ended)

    async def _run(self) -> None:
        me = _this_task()
        while not self._stopping and len(self._loops) <= self._scaler.target:
            permit = await self._permit()
            try:
                task = await self._answer()
                if task.task_token:
                    self._deliver(task, permit)
                else:
                    permit.release()
            except BaseException:
                permit.release()
                raise
            if me.cancelling():
                raise asyncio.CancelledError  # the answer came first, and was not lost
            self._rescale(task)

    async def _permit(self) -> Permit:
        """A slot at our turn; one that comes too late is left to those whose turn it is."""
        while True:
            await self._turns.wait()
            permit = await self._reserve()
            if self._turns.is_mine():
                return permit
            permit.release()

    async def _answer(self) -> Task:
        """What the server says, however often it must be asked."""
        retries = Retries(POLLS, poll=True, now=_now(), random=random.random)
        while True:
            try:
                return await self._ask()
            except RPCError as error:
                self._scaler.failed(error.code)
                delay = retries.after(error.code, error.message, _now())
                if delay is None:
                    raise
                self._retried(retries, error)
            if self._stopping:
                raise asyncio.CancelledError
            await asyncio.sleep(delay)

    async def _ask(self) -> Task:
        me = _this_task()
        answer = None
        self._polling.add(me)
        self._turns.began()
        self._metrics.began()
        try:
            answer = await self._poll(self._scaler.deadline(_now()))
        finally:
            self._polling.discard(me)
            self._turns.ended(answer)
            self._metrics.ended()
        if answer.task_token or not self._stopping:
            self._metrics.answered(with_task=bool(answer.task_token))
        return answer

    def _rescale(self, task: Task) -> None:
        suggestion = None
        if cast("Message", task).HasField("poller_scaling_decision"):
            suggestion = task.poller_scaling_decision.poll_request_delta_suggestion
        self._scaler.polled(empty=not task.task_token, suggestion=suggestion, now=_now())
        self._fill()

    def _ended(self, loop: asyncio.Task[None]) -> None:
        self._loops.discard(loop)
        if loop.cancelled():
            return
        error = loop.exception()
        if error is None:
            self._fill()  # loops that ended together, each for being one too many, may be missed
        elif isinstance(error, Exception) and not self._stopping:
            self._failed(error)


def _this_task() -> asyncio.Task[None]:
    task = asyncio.current_task()
    assert task is not None
    return task


def _now() -> float:
    return asyncio.get_running_loop().time()
