"""Polls for workflow tasks: of the task queue and, with a cache, of the worker's own sticky queue.

Both kinds draw on the same slots; `PollBalance` says whose turn it is. A fixed number of polls is
divided between them by the configured share, at least one each; scaled ones have a target each.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from temporalio.api.enums.v1 import TaskQueueKind
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import (
    PollWorkflowTaskQueueRequest,
    PollWorkflowTaskQueueResponse,
)

from perdure.temporal.slots.dealer import Dealer, Permit
from perdure.temporal.worker.diagnostics.journal import Journal
from perdure.temporal.worker.diagnostics.metrics import WorkerMetrics
from perdure.temporal.worker.polling.balance import PollBalance
from perdure.temporal.worker.polling.polls import Pollers
from perdure.temporal.worker.service import WorkflowService
from perdure.temporal.worker.settings import PollerCounts, WorkerSettings
from perdure.temporal.worker.workflows import WorkflowShell

__all__ = ["WorkflowPolls", "shares"]


class WorkflowPolls:
    """All polls for workflow tasks of one worker; nothing begins before `start`."""

    def __init__(
        self,
        settings: WorkerSettings,
        service: WorkflowService,
        dealer: Dealer,
        workflows: WorkflowShell,
        *,
        metrics: WorkerMetrics,
        journal: Journal,
        failed: Callable[[Exception], None],
    ) -> None:
        self._settings = settings
        self._service = service
        self._dealer = dealer
        self._workflows = workflows
        self._failed = failed
        self._metrics = metrics
        self._journal = journal
        self._balance = PollBalance()
        self._waiting: list[asyncio.Future[None]] = []
        self._pollers: list[Pollers[PollWorkflowTaskQueueResponse]] = []

    @property
    def started(self) -> bool:
        return bool(self._pollers)

    @property
    def under_way(self) -> int:
        """How many polls wait for the server."""
        return sum(pollers.under_way for pollers in self._pollers)

    def start(self, *, suggests: bool) -> None:
        """Begin to poll, if that has not begun; `suggests` as in `PollScaler`."""
        if self._pollers:
            return
        for counts, sticky in shares(self._settings):
            self._pollers.append(self._of_kind(counts, sticky=sticky))
        for pollers in self._pollers:
            pollers.start(suggests=suggests)

    def stop(self) -> None:
        """Begin no new poll."""
        for pollers in self._pollers:
            pollers.stop()

    async def ended(self, *, by_server: bool) -> None:
        """Wait until no poll is under way."""
        await asyncio.gather(*(pollers.ended(by_server=by_server) for pollers in self._pollers))

    def _of_kind(
        self, counts: PollerCounts, *, sticky: bool
    ) -> Pollers[PollWorkflowTaskQueueResponse]:
        request = _workflow_poll(self._settings, sticky=sticky)

        def deliver(task: PollWorkflowTaskQueueResponse, permit: Permit) -> None:
            self._workflows.new_task(task, permit, sticky=sticky)

        return Pollers(
            counts,
            reserve=lambda: self._dealer.reserve(sticky=sticky),
            poll=lambda seconds: self._service.poll_workflow(request, seconds),
            deliver=deliver,
            failed=self._failed,
            retried=partial(self._journal.poll_retried, "poll_workflow_task_queue"),
            metrics=self._metrics.polls("sticky_workflow_task" if sticky else "workflow_task"),
            turns=_Turns(self._balance, self._waiting, sticky=sticky)
            if self._settings.sticky_queue is not None
            else None,
        )


class _Turns:
    """The turns of one kind; whoever changes the balance wakes all that wait."""

    def __init__(
        self, balance: PollBalance, waiting: list[asyncio.Future[None]], *, sticky: bool
    ) -> None:
        self._balance = balance
        self._waiting = waiting
        self._sticky = sticky

    async def wait(self) -> None:
        while not self.is_mine():
            change: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(change)
            try:
                await change
            finally:
                if change in self._waiting:
                    self._waiting.remove(change)

    def is_mine(self) -> bool:
        return self._balance.may_poll(sticky=self._sticky)

    def began(self) -> None:
        self._balance.began(sticky=self._sticky)
        self._wake()

    def ended(self, answer: PollWorkflowTaskQueueResponse | None) -> None:
        self._balance.ended(sticky=self._sticky)
        if self._sticky and answer is not None:
            self._balance.heard(answer.backlog_count_hint)
        self._wake()

    def _wake(self) -> None:
        waiting, self._waiting[:] = list(self._waiting), []
        for change in waiting:
            if not change.done():
                change.set_result(None)


def shares(settings: WorkerSettings) -> list[tuple[PollerCounts, bool]]:
    """How many polls of which kind; the flag says that they are sticky."""
    counts = settings.workflow_pollers
    if settings.sticky_queue is None:
        return [(counts, False)]
    if counts.scaled:
        return [(counts, False), (counts, True)]
    most = counts.maximum
    normal = min(max(1, int(most * settings.normal_share)), most - 1)
    return [
        (PollerCounts(number, number, number), sticky)
        for number, sticky in ((normal, False), (most - normal, True))
    ]


def _workflow_poll(settings: WorkerSettings, *, sticky: bool) -> PollWorkflowTaskQueueRequest:
    """The request of a poll of the task queue, or of the worker's own sticky one."""
    if sticky:
        queue = TaskQueue(
            name=settings.sticky_queue or "",
            kind=TaskQueueKind.TASK_QUEUE_KIND_STICKY,
            normal_name=settings.task_queue,
        )
    else:
        queue = TaskQueue(name=settings.task_queue, kind=TaskQueueKind.TASK_QUEUE_KIND_NORMAL)
    return PollWorkflowTaskQueueRequest(
        namespace=settings.namespace,
        task_queue=queue,
        identity=settings.identity,
        worker_instance_key=settings.instance_key,
        binary_checksum="" if settings.server_knows_build_ids else settings.build_id,
        worker_version_capabilities=settings.version_capabilities(),
        deployment_options=settings.deployment_options(),
    )
