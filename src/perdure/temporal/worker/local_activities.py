"""The local activity manager at work: slots, timers, and lang's polls of activities.

Attempts go to lang as soon as they have a slot. Suppliers of the SDK's users are asked for the next
slot before there is an attempt for it, as the compiled core does. Cancellations are drawn by lang's
polls, so that one which is not needed any more never reaches lang, and an eviction is withheld
exactly until lang has the last of them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Any, cast

from temporalio.bridge.proto.activity_result import ActivityExecutionResult

from perdure.core.inputs import (
    Input,
    LocalCancelsDelivered,
    LocalResolved,
)
from perdure.core.local_activities.entry import Instant
from perdure.core.local_activities.requests import (
    AttemptOver,
    CancelsDelivered,
    LocalRequest,
    PermitReleased,
    Resolved,
)
from perdure.core.local_activities.tasks import LocalActivities
from perdure.temporal.slots.contexts import LocalActivitySlotInfo
from perdure.temporal.slots.dealer import Dealer, Permit
from perdure.temporal.worker.alarm import Alarm
from perdure.temporal.worker.diagnostics.journal import Journal
from perdure.temporal.worker.diagnostics.metrics import WorkerMetrics
from perdure.temporal.worker.mailbox import Mailbox

__all__ = ["LocalActivityShell"]


class LocalActivityShell:
    """Runs the manager of one worker; results go to `resolve` as inputs of the workflow stream."""

    def __init__(
        self,
        dealer: Dealer,
        mailbox: Mailbox,
        resolve: Callable[[Input], None],
        metrics: WorkerMetrics,
        journal: Journal,
    ) -> None:
        self._manager = LocalActivities()
        self._dealer = dealer
        self._mailbox = mailbox
        mailbox.draw_from(self._next_cancel)
        self._resolve = resolve
        self._metrics = metrics
        self._journal = journal
        self._alarm = Alarm(self._wake)
        self._waiting: asyncio.Task[None] | None = None
        self._ahead: Permit | None = None
        self._asks_ahead = False
        self._on_idle: Callable[[], None] | None = None

    def start(self) -> None:
        """Lang polls for activities: suppliers that are asked ahead of time are asked now."""
        if self._dealer.asks_ahead and not self._asks_ahead:
            self._asks_ahead = True
            self._pump()

    def request(self, requests: Iterable[object]) -> None:
        self._manager.request(cast("Iterable[LocalRequest]", requests), _now())
        self._pump()

    def complete(self, token: bytes, result: ActivityExecutionResult) -> None:
        """Lang's answer to an attempt."""
        if not self._manager.wants(token):
            self._journal.local_activity_unwanted(token)
        self._manager.complete(token, result, _now())
        self._pump()

    def cancel_all(self, run_id: str) -> None:
        self._manager.cancel_all(run_id)
        self._pump()

    def forget(self, run_id: str) -> None:
        self._manager.forget(run_id)
        self._pump()

    @property
    def unfinished(self) -> int:
        """How many wait, run, or pause before they are tried again."""
        return self._manager.unfinished

    def task_completed(self, run_id: str) -> None:
        self._manager.task_completed(run_id)

    def repeated_attempts(self, run_id: str) -> int:
        return self._manager.repeated_attempts(run_id)

    def when_idle(self, callback: Callable[[], None]) -> None:
        """Call this once, when nothing is running or waiting any more."""
        self._on_idle = callback
        self._pump()

    def close(self) -> None:
        """The worker has ended."""
        self._stop_waiting()
        self._alarm.close()

    def _pump(self) -> None:
        manager = self._manager
        while manager.has_queued and (permit := self._permit_now()) is not None:
            self._start(permit)
        if self._ahead is not None and not self._asks_ahead:
            self._ahead.release()
            self._ahead = None
        if self._wants_slot() and self._waiting is None:
            self._waiting = asyncio.get_running_loop().create_task(self._wait_for_slot())
        self._mailbox.ring()
        self._alarm.set(manager.next_deadline())
        for event in manager.drain():
            self._handle(event)
        if self._on_idle is not None and manager.is_idle:
            callback, self._on_idle = self._on_idle, None
            self._stop_waiting()
            callback()

    def _permit_now(self) -> Permit | None:
        permit, self._ahead = self._ahead, None
        if permit is None and not self._dealer.asks_ahead:
            permit = self._dealer.try_reserve()
        return permit

    def _wants_slot(self) -> bool:
        return self._manager.has_queued or (self._asks_ahead and self._ahead is None)

    def _stop_waiting(self) -> None:
        self._asks_ahead = False
        if self._waiting is not None:
            self._waiting.cancel()
        if self._ahead is not None:
            self._ahead.release()
            self._ahead = None

    def _next_cancel(self) -> bytes | None:
        """Lang takes a cancellation: what waited for that comes after it, not in its midst."""
        cancel = self._manager.take_cancel()
        if cancel is None:
            return None
        asyncio.get_running_loop().call_soon(self._pump)
        return cancel.SerializeToString()

    def _start(self, permit: Permit) -> None:
        task = self._manager.start_next(permit, _now())
        if task is None:
            permit.release()
            return
        permit.mark_used(LocalActivitySlotInfo(task.start.activity_type))
        self._metrics.local_activity_started(task.start.activity_type, task.start.workflow_type)
        self._mailbox.put(task.SerializeToString())

    async def _wait_for_slot(self) -> None:
        try:
            permit = await self._dealer.reserve()
        finally:
            self._waiting = None
        self._ahead = permit
        self._pump()

    def _wake(self) -> None:
        self._manager.wake(_now())
        self._pump()

    def _handle(self, event: Any) -> None:
        if isinstance(event, Resolved):
            self._resolve(LocalResolved(event.run_id, event.result.seq, event.result))
        elif isinstance(event, PermitReleased):
            cast("Permit", event.permit).release()
        elif isinstance(event, AttemptOver):
            self._metrics.local_activity_ended(event)
        elif isinstance(event, CancelsDelivered):
            self._resolve(LocalCancelsDelivered(event.run_id))


def _now() -> Instant:
    return Instant(asyncio.get_running_loop().time(), time.time())
