"""Nexus tasks of a worker: from the poll to the answer that the server has taken.

`NexusTasks` does no I/O and has no clock. The shell hands in polled tasks (`polled`), lang's
completions (`complete`), the end of RPCs (`reported`) and the time (`wake`, when `next_deadline`
says so), and carries out what `drain` returns, in order.

Invariants: every task handed to lang needs one completion, whatever it was told in between. Lang is
told at most once that a task timed out and at most once that the worker stops, and never after it
completed the task. A completion that makes no sense ends its task too: lang knows of its mistake
and will not try again, and a task without an end would keep the worker from stopping.

A deadline is the caller's: the time it waits for the answer. A completion that comes later is
reported all the same, because only the server knows whether anybody still waits.
"""

from __future__ import annotations

import enum
from typing import Final

from temporalio.api.workflowservice.v1.request_response_pb2 import PollNexusTaskQueueResponse
from temporalio.bridge.proto.nexus.nexus_pb2 import (
    CancelNexusTask,
    NexusTask,
    NexusTaskCancelReason,
    NexusTaskCompletion,
)

from perdure.core.deadlines import Deadlines
from perdure.core.durations import seconds
from perdure.core.nexus.events import (
    NexusEvent,
    NexusTaskDropped,
    NexusTaskOver,
    ReportNexusAnswer,
    TellLang,
    UnreadableTimeout,
)
from perdure.core.nexus.go_duration import parse_go_duration
from perdure.core.nexus.reports import (
    MalformedNexusCompletion,
    NexusReports,
    NexusSettings,
    nexus_task,
)

__all__ = ["NexusTasks"]

_TIMEOUT_HEADER: Final = "request-timeout"


class _Timer(enum.Enum):
    REQUEST = "request"
    GRACE = "grace"


class _RunningTask:
    """One task that is not over."""

    __slots__ = ("began", "ended", "failure_reason", "permit", "request", "token")

    def __init__(self, polled: PollNexusTaskQueueResponse, permit: object, now: float) -> None:
        self.token = polled.task_token
        self.request = polled.request
        self.permit = permit
        self.began = now
        self.ended: float | None = None
        self.failure_reason = ""

    def over(self, *, reported: bool) -> NexusTaskOver:
        stamp = self.request.scheduled_time
        assert self.ended is not None
        return NexusTaskOver(
            permit=self.permit,
            scheduled=seconds(stamp),
            began=self.began,
            ended=self.ended,
            reported=reported,
            failure_reason=self.failure_reason,
        )


class NexusTasks:
    """All Nexus tasks of a worker; see the module."""

    __slots__ = ("_deadlines", "_events", "_grace", "_polls_ended", "_tasks", "reports")

    def __init__(self, settings: NexusSettings) -> None:
        self.reports: Final = NexusReports(settings)
        self._grace = settings.graceful_shutdown_period
        self._tasks: dict[bytes, _RunningTask] = {}
        self._deadlines: Deadlines[tuple[_Timer, bytes]] = Deadlines()
        self._events: list[NexusEvent] = []
        self._polls_ended = False

    # What the shell asks

    @property
    def outstanding(self) -> int:
        """Tasks that are not over."""
        return len(self._tasks)

    @property
    def is_finished(self) -> bool:
        """Shutdown is complete: lang's polls end."""
        return self._polls_ended and not self._tasks

    def next_deadline(self) -> float | None:
        """When `wake` has something to do."""
        return self._deadlines.next()

    def drain(self) -> list[NexusEvent]:
        """What has happened since the last time, in order."""
        events, self._events = self._events, []
        return events

    # What happens

    def polled(
        self, polled: PollNexusTaskQueueResponse, permit: object, now: float, unix_nanos: int
    ) -> None:
        """A task from a poll, not an empty one, at `unix_nanos` since 1970."""
        if polled.task_token in self._tasks:
            self._events.append(NexusTaskDropped(permit, "it is under way already"))
            return
        if polled.request.WhichOneof("variant") is None:
            self._events.append(NexusTaskDropped(permit, "missing request variant"))
            return
        running = _RunningTask(polled, permit, now)
        self._tasks[running.token] = running
        task = nexus_task(polled)
        text = task.task.request.header.get(_TIMEOUT_HEADER)
        if text is not None:
            self._expect(task, text, now, unix_nanos)
        self._events.append(TellLang(task))

    def complete(self, completion: NexusTaskCompletion, now: float) -> bool:
        """Lang's answer to a task. False if no such task is waiting for one.

        Raises `MalformedNexusCompletion` for an answer that the server cannot be told.
        """
        token = completion.task_token
        running = self._tasks.get(token)
        if running is None or running.ended is not None:
            return False
        running.ended = now
        self._deadlines.clear((_Timer.REQUEST, token))
        try:
            answer = self.reports.answer(running.request, completion)
        except MalformedNexusCompletion:
            self._over(running, reported=False)
            raise
        running.failure_reason = answer.failure_reason
        if answer.request is None:
            self._over(running, reported=False)
        else:
            self._events.append(ReportNexusAnswer(token, answer.request))
        return True

    def reported(self, token: bytes) -> None:
        """`ReportNexusAnswer` was answered. Errors are the shell's to log: lang is never told."""
        self._over(self._tasks[token], reported=True)

    def polls_ended(self, now: float) -> None:
        """No `polled` will follow. After the grace period lang is told to stop what it does."""
        self._polls_ended = True
        if self._grace > 0 and self._tasks:
            self._deadlines.set((_Timer.GRACE, b""), now + self._grace)
        else:
            self._stop_all()

    def wake(self, now: float) -> None:
        """Let happen what is due."""
        for timer, token in self._deadlines.due(now):
            if timer is _Timer.GRACE:
                self._stop_all()
            else:
                self._cancel(self._tasks[token], NexusTaskCancelReason.TIMED_OUT)

    # Inside

    def _expect(self, task: NexusTask, text: str, now: float, unix_nanos: int) -> None:
        nanos = parse_go_duration(text)
        if nanos is None:
            self._events.append(UnreadableTimeout(text))
            return
        nanos = max(nanos, 0)
        task.request_deadline.FromNanoseconds(unix_nanos + nanos)
        self._deadlines.set((_Timer.REQUEST, task.task.task_token), now + nanos / 1e9)

    def _stop_all(self) -> None:
        for running in self._tasks.values():
            if running.ended is None:
                self._cancel(running, NexusTaskCancelReason.WORKER_SHUTDOWN)

    def _cancel(self, running: _RunningTask, reason: NexusTaskCancelReason.ValueType) -> None:
        cancel = CancelNexusTask(task_token=running.token, reason=reason)
        self._events.append(TellLang(NexusTask(cancel_task=cancel)))

    def _over(self, running: _RunningTask, *, reported: bool) -> None:
        del self._tasks[running.token]
        if not self._tasks:
            self._deadlines.clear((_Timer.GRACE, b""))
        self._events.append(running.over(reported=reported))
