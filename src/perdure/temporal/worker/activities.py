"""Activities that the server hands out: polls, slots, RPCs and timers around their manager."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, cast

from temporalio.api.workflowservice.v1 import PollActivityTaskQueueResponse
from temporalio.bridge.proto import ActivityHeartbeat, ActivityTaskCompletion

from perdure.core.activities.events import (
    ActivityOver,
    HeartbeatAnswer,
    RecordHeartbeat,
    ReportResult,
)
from perdure.core.activities.reports import ActivitySettings
from perdure.core.activities.tasks import Activities
from perdure.core.status_codes import NOT_FOUND
from perdure.temporal.sdk_errors import RPCError
from perdure.temporal.slots.contexts import ActivitySlotInfo
from perdure.temporal.slots.dealer import Dealer, Permit
from perdure.temporal.worker.alarm import Alarm
from perdure.temporal.worker.diagnostics.journal import Journal
from perdure.temporal.worker.diagnostics.metrics import WorkerMetrics, seconds_between
from perdure.temporal.worker.mailbox import Mailbox
from perdure.temporal.worker.polling.polls import Pace, Pollers
from perdure.temporal.worker.service import TooLargeToSend, WorkflowService
from perdure.temporal.worker.settings import WorkerSettings
from perdure.temporal.worker.workflows import EagerActivities

__all__ = ["ActivityShell"]


class ActivityShell(EagerActivities):
    """Runs the manager of one worker, and gives workflow tasks slots for eager starts."""

    def __init__(
        self,
        settings: WorkerSettings,
        service: WorkflowService,
        dealer: Dealer,
        mailbox: Mailbox,
        *,
        journal: Journal,
        metrics: WorkerMetrics,
        failed: Callable[[Exception], None],
        on_finished: Callable[[], None],
    ) -> None:
        self._manager = Activities(_activity_settings(settings))
        self._service = service
        self._dealer = dealer
        self._mailbox = mailbox
        mailbox.draw_from(self._next_task)
        self._journal = journal
        self._metrics = metrics
        self._on_finished = on_finished
        self._finished = False
        self._pace = Pace(settings.max_activities_per_second)
        self._alarm = Alarm(self._wake)
        self._calls: set[asyncio.Task[None]] = set()
        self._started = False
        self._stopping = False
        request = self._manager.reports.poll()
        self._pollers: Pollers[PollActivityTaskQueueResponse] = Pollers(
            settings.activity_pollers,
            reserve=self._reserve,
            poll=lambda seconds: service.poll_activity(request, seconds),
            deliver=self._polled,
            failed=failed,
            retried=partial(journal.poll_retried, "poll_activity_task_queue"),
            metrics=metrics.polls("activity_task"),
        )

    # Tasks

    def start(self, *, suggests: bool) -> None:
        """Begin to poll, if that has not begun; `suggests` as in `PollScaler`."""
        if not self._started:
            self._started = True
            self._pollers.start(suggests=suggests)

    def try_reserve(self) -> Permit | None:
        return None if self._stopping else self._dealer.try_reserve()

    def deliver(self, task: PollActivityTaskQueueResponse, permit: Permit) -> None:
        self._received(task, permit, eager=True)
        self._manager.eager([task], [permit], _now())
        self._pump()

    def _polled(self, task: PollActivityTaskQueueResponse, permit: Permit) -> None:
        self._received(task, permit, eager=False)
        self._manager.polled(task, permit, _now())
        self._pump()

    def _received(
        self, task: PollActivityTaskQueueResponse, permit: Permit, *, eager: bool
    ) -> None:
        permit.mark_used(ActivitySlotInfo(task.activity_type.name))
        waited = seconds_between(task.current_attempt_scheduled_time, task.started_time)
        self._metrics.activity_received(
            task.activity_type.name, task.workflow_type.name, eager=eager, waited=waited
        )

    async def _reserve(self) -> Permit:
        await self._pace.wait()
        return await self._dealer.reserve()

    # Lang

    def heartbeat(self, heartbeat: ActivityHeartbeat) -> None:
        self._manager.heartbeat(heartbeat, _now())
        self._pump()

    def complete(self, completion: ActivityTaskCompletion) -> None:
        """Lang's answer to a task; `MalformedActivityCompletion` changes nothing."""
        self._manager.complete(completion, _now())
        self._pump()

    # The server

    def cancel(self, token: bytes) -> None:
        """The server wants this activity cancelled at once; one that is not here is nothing."""
        self._manager.cancel(token)
        self._pump()

    # Shutdown

    def stop(self) -> None:
        """Begin no new poll; after the graceful period cancel what runs."""
        self._stopping = True
        self._pollers.stop()
        self._manager.shutdown(_now())
        self._pump()

    async def polls_ended(self, *, by_server: bool) -> None:
        """Wait until no poll is under way."""
        await self._pollers.ended(by_server=by_server)
        self._manager.pollers_stopped()
        self._pump()

    def waiting_for(self) -> list[str]:
        """What a shutdown waits for, in words."""
        left = []
        if self._pollers.under_way:
            left.append(f"{self._pollers.under_way} polls for activities")
        if self._manager.outstanding:
            left.append(f"{self._manager.outstanding} activities that have not ended")
        if self._calls:
            left.append(f"{len(self._calls)} calls for activities")
        return left

    async def idle(self) -> None:
        """Wait until no call to the server is under way."""
        while self._calls:
            await asyncio.wait(list(self._calls))

    def close(self) -> None:
        """The worker has ended."""
        self._alarm.close()

    # Out

    def _next_task(self) -> bytes | None:
        task = self._manager.next_task()
        return None if task is None else task.SerializeToString()

    def _pump(self) -> None:
        manager = self._manager
        self._mailbox.ring()
        for event in manager.drain():
            if isinstance(event, RecordHeartbeat):
                self._spawn(self._record_heartbeat(event))
            elif isinstance(event, ReportResult):
                self._spawn(self._report(event))
            else:
                if isinstance(event, ActivityOver):
                    self._metrics.activity_ended(event, time.time() - event.scheduled)
                cast("Permit", event.permit).release()
        self._alarm.set(manager.next_deadline())
        if manager.is_finished and not self._finished:
            self._finished = True
            self._on_finished()

    def _wake(self) -> None:
        self._manager.wake(_now())
        self._pump()

    def _spawn(self, call: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(call)
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)

    async def _record_heartbeat(self, event: RecordHeartbeat) -> None:
        try:
            answer: Any = await self._service.heartbeat_activity(event.request)
        except TooLargeToSend as error:
            await self._fail_too_large(event.token, error)
            answer = HeartbeatAnswer.TOO_LARGE
        except RPCError as error:
            found = error.code != NOT_FOUND
            answer = HeartbeatAnswer.FAILED if found else HeartbeatAnswer.NOT_FOUND
            self._journal.heartbeat_not_recorded(event.token, error)
        self._manager.heartbeat_answered(event.token, answer, _now())
        self._pump()

    async def _report(self, event: ReportResult) -> None:
        accepted = False
        try:
            await self._service.answer_activity(event.request)
            accepted = True
        except TooLargeToSend as error:
            await self._fail_too_large(event.token, error)
        except RPCError as error:
            self._journal.activity_not_reported(event.token, error)
        self._manager.reported(event.token, accepted=accepted)
        self._pump()

    async def _fail_too_large(self, token: bytes, cause: TooLargeToSend) -> None:
        request = self._manager.reports.too_large(token, cause.message)
        try:
            await self._service.answer_activity(request)
        except RPCError as error:
            self._journal.activity_not_reported(token, error)


def _activity_settings(settings: WorkerSettings) -> ActivitySettings:
    return ActivitySettings(
        namespace=settings.namespace,
        task_queue=settings.task_queue,
        identity=settings.identity,
        versioning=settings.versioning,
        default_heartbeat_throttle=settings.default_heartbeat_throttle,
        max_heartbeat_throttle=settings.max_heartbeat_throttle,
        graceful_shutdown_period=settings.graceful_shutdown_period,
        max_task_queue_activities_per_second=settings.max_task_queue_activities_per_second,
        server_knows_build_ids=settings.server_knows_build_ids,
        worker_instance_key=settings.instance_key,
    )


def _now() -> float:
    return asyncio.get_running_loop().time()
