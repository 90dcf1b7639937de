"""Nexus tasks that the server hands out: polls, slots, RPCs and timers around their core."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import cast

from temporalio.api.workflowservice.v1 import PollNexusTaskQueueResponse
from temporalio.bridge.proto.nexus import NexusTaskCompletion

from perdure.core.nexus.events import (
    NexusEvent,
    NexusTaskDropped,
    NexusTaskOver,
    ReportNexusAnswer,
    TellLang,
)
from perdure.core.nexus.reports import NexusSettings, operation_of
from perdure.core.nexus.tasks import NexusTasks
from perdure.temporal.connection.retry_log import log_retry
from perdure.temporal.sdk_errors import PollShutdownError, RPCError
from perdure.temporal.slots.contexts import NexusSlotInfo
from perdure.temporal.slots.dealer import Dealer, Permit
from perdure.temporal.telemetry.log_filter import WARN
from perdure.temporal.telemetry.logs import Log
from perdure.temporal.worker.alarm import Alarm
from perdure.temporal.worker.diagnostics.metrics import WorkerMetrics
from perdure.temporal.worker.mailbox import Mailbox
from perdure.temporal.worker.polling.polls import Pollers
from perdure.temporal.worker.service import WorkflowService
from perdure.temporal.worker.settings import WorkerSettings

__all__ = ["NexusShell"]

_TARGET = "temporalio_sdk_core::worker::nexus"


class NexusShell:
    """Runs the Nexus tasks of one worker; its mailbox closes when the last one is over."""

    def __init__(
        self,
        settings: WorkerSettings,
        service: WorkflowService,
        dealer: Dealer,
        *,
        log: Log,
        metrics: WorkerMetrics,
        failed: Callable[[Exception], None],
    ) -> None:
        self.mailbox = Mailbox()
        self._tasks = NexusTasks(
            NexusSettings(
                namespace=settings.namespace,
                task_queue=settings.task_queue,
                identity=settings.identity,
                versioning=settings.versioning,
                worker_instance_key=settings.instance_key,
                graceful_shutdown_period=settings.graceful_shutdown_period,
            )
        )
        self._service = service
        self._log = log
        self._metrics = metrics
        self._alarm = Alarm(self._wake)
        self._calls: set[asyncio.Task[None]] = set()
        self._started = False
        self._finished = asyncio.Event()
        request = self._tasks.reports.poll()
        self._pollers: Pollers[PollNexusTaskQueueResponse] = Pollers(
            settings.nexus_pollers,
            reserve=dealer.reserve,
            poll=lambda seconds: service.poll_nexus(request, seconds),
            deliver=self._polled,
            failed=failed,
            retried=partial(log_retry, log, "poll_nexus_task_queue"),
            metrics=metrics.polls("nexus_task"),
        )

    # Tasks

    def start(self, *, suggests: bool) -> None:
        """Begin to poll, if that has not begun; `suggests` as in `PollScaler`."""
        if not self._started:
            self._started = True
            self._pollers.start(suggests=suggests)

    def complete(self, completion: NexusTaskCompletion) -> None:
        """Lang's answer to a task; `MalformedNexusCompletion` ends the task as well."""
        try:
            known = self._tasks.complete(completion, _now())
        finally:
            self._pump()
        if not known:
            token = completion.task_token.hex()
            self._warn(f"Attempted to complete nexus task {token} but we were not tracking it")

    def _polled(self, task: PollNexusTaskQueueResponse, permit: Permit) -> None:
        permit.mark_used(NexusSlotInfo(*operation_of(task.request)))
        unix_nanos = time.time_ns()
        waited = None
        if task.request.HasField("scheduled_time"):
            scheduled = task.request.scheduled_time
            waited = unix_nanos / 1e9 - scheduled.seconds - scheduled.nanos / 1e9
        self._metrics.nexus_task_received(waited)
        self._tasks.polled(task, permit, _now(), unix_nanos)
        self._pump()

    # Shutdown

    def stop(self) -> None:
        """Begin no new poll."""
        self._pollers.stop()

    async def polls_ended(self, *, by_server: bool) -> None:
        """Wait until no poll is under way."""
        await self._pollers.ended(by_server=by_server)
        self._tasks.polls_ended(_now())
        self._pump()

    @property
    def outstanding(self) -> int:
        """How many tasks are not over."""
        return self._tasks.outstanding

    async def over(self) -> None:
        """Wait until the server has the answer to the last task."""
        await self._finished.wait()

    def close(self) -> None:
        """The worker has ended."""
        self._alarm.close()

    # Out

    def _pump(self) -> None:
        for event in self._tasks.drain():
            self._carry_out(event)
        self._alarm.set(self._tasks.next_deadline())
        if self._tasks.is_finished:
            self._finished.set()
            self.mailbox.close(PollShutdownError())

    def _carry_out(self, event: NexusEvent) -> None:
        if isinstance(event, TellLang):
            self.mailbox.put(event.task.SerializeToString())
        elif isinstance(event, ReportNexusAnswer):
            call = asyncio.get_running_loop().create_task(self._report(event))
            self._calls.add(call)
            call.add_done_callback(self._calls.discard)
        elif isinstance(event, NexusTaskOver):
            self._over(event)
        elif isinstance(event, NexusTaskDropped):
            cast("Permit", event.permit).release()
            self._warn(f"Received invalid nexus task: {event.problem}")
        else:
            self._warn(f"Failed to parse nexus timeout header value {event.value!r}")

    def _over(self, event: NexusTaskOver) -> None:
        cast("Permit", event.permit).release()
        self._metrics.nexus_task_ended(
            event.ended - event.began, failure_reason=event.failure_reason
        )
        if event.reported and event.scheduled:
            self._metrics.nexus_task_answered(time.time() - event.scheduled)

    def _wake(self) -> None:
        self._tasks.wake(_now())
        self._pump()

    async def _report(self, event: ReportNexusAnswer) -> None:
        try:
            await self._service.answer_nexus(event.request)
        except RPCError as error:
            self._warn(
                "The server did not take the answer to a Nexus task; its caller may have given up",
                code=error.code,
                error=error.message,
            )
        self._tasks.reported(event.token)
        self._pump()

    def _warn(self, message: str, **fields: object) -> None:
        self._log.write(WARN, _TARGET, message, **fields)


def _now() -> float:
    return asyncio.get_running_loop().time()
