"""The workflow stream at work: its inputs come from polls, lang and timers, its actions go out.

Everything that changes workflow state happens in `feed`, on the event loop, one input at a time.
Inputs that arise while actions are carried out wait in a queue, so the stream is never re-entered.

A run waits for the end of each of its calls to the server. So however a call ends, even with an
error that nobody foresaw, the stream hears of it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, cast

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import (
    GetWorkflowExecutionHistoryRequest,
    PollWorkflowTaskQueueResponse,
)
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion

from perdure.core.actions import (
    Action,
    CancelAllLocalActivities,
    ClearHeartbeat,
    CompleteTask,
    Counted,
    FailTask,
    FetchPage,
    Finished,
    ForgetLocalActivities,
    LangActivation,
    Measured,
    ReleasePermit,
    RespondQuery,
    RunLocalActivities,
    RunRemoved,
    SetHeartbeat,
    TaskOver,
)
from perdure.core.inputs import (
    Completed,
    HeartbeatDue,
    Input,
    LocalCancelsDelivered,
    NewTask,
    PageFetched,
    PageFetchFailed,
    Problem,
    ProblemKind,
    Reported,
)
from perdure.core.stream_settings import StreamSettings
from perdure.core.workflow_tasks.reports import problem_of
from perdure.core.workflow_tasks.task import MalformedTask
from perdure.temporal.sdk_errors import PollShutdownError, RPCError
from perdure.temporal.slots.contexts import WorkflowSlotInfo
from perdure.temporal.slots.dealer import Permit
from perdure.temporal.worker.diagnostics import call_sites
from perdure.temporal.worker.diagnostics.journal import Journal
from perdure.temporal.worker.diagnostics.metrics import SILENT, WorkerMetrics, seconds_between
from perdure.temporal.worker.diagnostics.tracing import new_stream
from perdure.temporal.worker.mailbox import Mailbox
from perdure.temporal.worker.service import TooLargeToSend

if TYPE_CHECKING:
    from perdure.temporal.worker.local_activities import LocalActivityShell
    from perdure.temporal.worker.service import WorkflowTaskService

__all__ = ["EagerActivities", "WorkflowShell"]

_log = logging.getLogger(__name__)


class EagerActivities:
    """Where eager starts get their slots and deliver their tasks; this one has none."""

    def try_reserve(self) -> Permit | None:
        """A slot for an activity that may come with the answer of a workflow task."""
        return None

    def deliver(self, task: Any, permit: Permit) -> None:
        """An activity task that came so."""
        del task
        permit.release()


class WorkflowShell:
    """Runs one workflow stream."""

    def __init__(
        self,
        settings: StreamSettings,
        service: WorkflowTaskService,
        *,
        on_finished: Callable[[], None] = lambda: None,
        on_run_removed: Callable[[str], None] = lambda _: None,
        metrics: WorkerMetrics = SILENT,
        journal: Journal,
    ) -> None:
        call_sites.watch()
        self.stream = new_stream(settings)
        self.mailbox = Mailbox()
        self.local: LocalActivityShell | None = None
        self.eager = EagerActivities()
        self._settings = settings
        self._service = service
        self._on_finished = on_finished
        self._on_run_removed = on_run_removed
        self._metrics = metrics
        self._shown_cache_size = 0
        self._journal = journal
        self._inputs: deque[Input] = deque()
        self._feeding = False
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._calls: set[asyncio.Task[None]] = set()
        self._handlers: dict[type, Callable[[Any], None]] = {
            LangActivation: self._to_lang,
            CompleteTask: lambda action: self._spawn(self._complete_task(action)),
            FailTask: lambda action: self._spawn(self._fail_task(action)),
            RespondQuery: lambda action: self._spawn(self._respond_query(action)),
            FetchPage: lambda action: self._spawn(self._fetch_page(action)),
            RunLocalActivities: self._run_local,
            CancelAllLocalActivities: self._cancel_all_local,
            ForgetLocalActivities: self._forget_local,
            SetHeartbeat: self._set_heartbeat,
            ClearHeartbeat: self._clear_heartbeat,
            ReleasePermit: lambda action: action.permit.release(),
            RunRemoved: self._run_removed,
            Counted: metrics.workflow_counted,
            Measured: self._measure,
            TaskOver: self._task_over,
            Finished: self._finished,
        }

    # In

    def feed(self, given: Input) -> None:
        """One input, and all that follows from it now."""
        self._inputs.append(given)
        if self._feeding:
            return
        self._feeding = True
        try:
            while self._inputs:
                self._take(self._inputs.popleft())
        finally:
            self._feeding = False
        if self.stream.cached_runs != self._shown_cache_size:
            self._shown_cache_size = self.stream.cached_runs
            self._metrics.cache_size(self._shown_cache_size)

    def _take(self, given: Input) -> None:
        try:
            actions = self.stream.handle(given)
        except MalformedTask as error:
            assert isinstance(given, NewTask), "other inputs bring no task"
            self._journal.task_unusable(error.message)
            cast("Permit", given.permit).release()
            return
        for action in actions:
            self._carry_out(action)

    def new_task(
        self, task: PollWorkflowTaskQueueResponse, permit: Permit, *, sticky: bool = False
    ) -> None:
        """A task from a poll."""
        permit.mark_used(WorkflowSlotInfo(task.workflow_type.name, sticky))
        if task.HasField("started_time") and task.HasField("scheduled_time"):
            waited = seconds_between(task.scheduled_time, task.started_time)
            self._metrics.workflow_task_received(waited)
        self.feed(NewTask(task, permit, asyncio.get_running_loop().time()))

    def complete(self, raw: bytes) -> None:
        """Lang's answer to an activation; ValueError when it is malformed."""
        completion = WorkflowActivationCompletion.FromString(raw)
        self._journal.slow_tasks.completed(completion)
        sites = call_sites.take(completion.run_id, len(completion.successful.commands))
        self.feed(Completed(completion, sites))

    def waiting_for(self) -> list[str]:
        """What a shutdown waits for, in words."""
        left = []
        if runs := self.stream.pending_runs():
            named = ", ".join(runs[:3]) + (", …" if len(runs) > 3 else "")
            left.append(f"{len(runs)} workflow runs with something to do ({named})")
        if self._calls:
            left.append(f"{len(self._calls)} calls for workflow tasks")
        if self.local is not None and self.local.unfinished:
            left.append(f"{self.local.unfinished} local activities")
        return left

    async def idle(self) -> None:
        """Wait until no call to the server is under way."""
        while self._calls:
            await asyncio.wait(list(self._calls))

    def close(self) -> None:
        """The worker has ended."""
        for run_id in list(self._timers):
            self._stop_timer(run_id)
        if self.local is not None:
            self.local.close()

    # Out

    def _carry_out(self, action: Action) -> None:
        self._handlers[type(action)](action)

    def _measure(self, action: Measured) -> None:
        now = time.time() if action.by_wall_clock else asyncio.get_running_loop().time()
        self._metrics.workflow_measured(action.name, action.workflow_type, now - action.since)

    def _task_over(self, action: TaskOver) -> None:
        seconds = asyncio.get_running_loop().time() - action.since
        name = "workflow_task_execution_latency"
        self._metrics.workflow_measured(name, action.workflow_type, seconds)
        self._journal.slow_tasks.over(action, seconds)

    def _run_removed(self, action: RunRemoved) -> None:
        self._journal.run_evicted(action.run_id)
        self._on_run_removed(action.run_id)

    def _to_lang(self, action: LangActivation) -> None:
        self.mailbox.put(action.activation.SerializeToString())

    def _spawn(self, call: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(call)
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)

    async def _complete_task(self, action: CompleteTask) -> None:
        permits = self._reserve_eager(action)
        response, problem = None, None
        if self.local is not None:
            count = self.local.repeated_attempts(action.run_id)
            if count:
                metering = action.request.metering_metadata
                metering.nonfirst_local_activity_execution_attempts = count
            self.local.task_completed(action.run_id)
        try:
            response = await self._service.complete_workflow_task(action.request)
        except Exception as error:
            problem = _problem(error)
            self._journal.completion_refused(action.run_id, problem)
        else:
            for task in response.activity_tasks:
                permit = permits.pop() if permits else self.eager.try_reserve()
                if permit is not None:
                    self.eager.deliver(task, permit)
        finally:
            for permit in permits:
                permit.release()
        self._reported(action.run_id, response, problem)

    def _reserve_eager(self, action: CompleteTask) -> list[Permit]:
        permits = []
        for command in action.eager:
            permit = self.eager.try_reserve()
            if permit is None:
                attributes = command.schedule_activity_task_command_attributes
                attributes.request_eager_execution = False
            else:
                permits.append(permit)
        return permits

    async def _fail_task(self, action: FailTask) -> None:
        problem = None
        self._journal.task_fails(action.run_id, action.request)
        try:
            await self._service.fail_workflow_task(action.request)
        except Exception as error:
            problem = _problem(error)
        if not action.unstored:
            self._reported(action.run_id, None, problem)

    async def _respond_query(self, action: RespondQuery) -> None:
        problem = None
        try:
            await self._service.answer_query(action.request)
        except Exception as error:
            problem = _problem(error)
        self._reported(action.run_id, None, problem)

    def _reported(self, run_id: str, response: Any, problem: Problem | None) -> None:
        now = asyncio.get_running_loop().time()
        self.feed(Reported(run_id, now, response, problem))

    async def _fetch_page(self, action: FetchPage) -> None:
        request = GetWorkflowExecutionHistoryRequest(
            namespace=self._settings.namespace,
            execution=WorkflowExecution(workflow_id=action.workflow_id, run_id=action.run_id),
            next_page_token=action.token,
        )
        try:
            page = await self._service.history(request)
        except Exception as error:
            self.feed(PageFetchFailed(action.fetch, _problem(error).text))
        else:
            self.feed(PageFetched(action.fetch, page.history, page.next_page_token))

    def _run_local(self, action: RunLocalActivities) -> None:
        if self.local is not None:
            self.local.request(action.requests)
        # Else this is a replay of a history that ends while they run: the run leaves the cache now.

    def _cancel_all_local(self, action: CancelAllLocalActivities) -> None:
        if self.local is None:
            self.feed(LocalCancelsDelivered(action.run_id))
        else:
            self.local.cancel_all(action.run_id)

    def _forget_local(self, action: ForgetLocalActivities) -> None:
        if self.local is not None:
            self.local.forget(action.run_id)

    def _set_heartbeat(self, action: SetHeartbeat) -> None:
        self._stop_timer(action.run_id)
        due = HeartbeatDue(action.run_id, action.task_token)
        loop = asyncio.get_running_loop()
        self._timers[action.run_id] = loop.call_at(action.at, self.feed, due)

    def _clear_heartbeat(self, action: ClearHeartbeat) -> None:
        self._stop_timer(action.run_id)

    def _stop_timer(self, run_id: str) -> None:
        timer = self._timers.pop(run_id, None)
        if timer is not None:
            timer.cancel()

    def _finished(self, action: Finished) -> None:
        del action
        self.mailbox.close(PollShutdownError())
        self._on_finished()


def _problem(error: Exception) -> Problem:
    """Why a call failed; nobody foresees errors that are not `RPCError`, so they are logged."""
    if isinstance(error, TooLargeToSend):
        return Problem(error.kind, error.message)
    if isinstance(error, RPCError):
        return problem_of(error.code, error.message)
    _log.error("unexpected error in a call to the server", exc_info=error)
    return Problem(ProblemKind.OTHER, f"unexpected {type(error).__name__}: {error}")
