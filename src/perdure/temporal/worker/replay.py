"""A worker that replays histories instead of polling a server.

Every pushed history becomes one workflow task with all of its events. Histories go one at a time:
the next one begins when the run of the one before has left the cache, so lang sees exactly one
eviction per history. Nothing is reported anywhere.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING

from temporalio.api.common.v1 import WorkflowExecution, WorkflowType
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import History
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import (
    GetWorkflowExecutionHistoryRequest,
    GetWorkflowExecutionHistoryResponse,
    PollWorkflowTaskQueueResponse,
    RespondQueryTaskCompletedRequest,
    RespondWorkflowTaskCompletedRequest,
    RespondWorkflowTaskCompletedResponse,
    RespondWorkflowTaskFailedRequest,
)
from temporalio.bridge.proto import NamespaceInfo
from temporalio.bridge.proto.workflow_activation import RemoveFromCache

from perdure.core.inputs import (
    EvictionRequested,
    NewTask,
    PollersStopped,
    ShutdownRequested,
)
from perdure.temporal.sdk_errors import PollShutdownError
from perdure.temporal.telemetry.logs import Log
from perdure.temporal.worker.diagnostics.journal import Journal
from perdure.temporal.worker.settings import stream_settings, worker_settings
from perdure.temporal.worker.workflows import WorkflowShell

if TYPE_CHECKING:
    from temporalio.bridge.worker import WorkerConfig

    from perdure.temporal.bridge.client import ClientRef

__all__ = ["InvalidHistory", "ReplayWorker", "task_of"]

_FAILED = frozenset(
    {EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED, EventType.EVENT_TYPE_WORKFLOW_TASK_TIMED_OUT}
)


class InvalidHistory(ValueError):
    """The pushed history cannot be replayed; the SDK expects a ValueError."""


class ReplayWorker:
    """See the module."""

    def __init__(self, config: WorkerConfig, log: Log) -> None:
        settings = replace(
            worker_settings(config, "replayer"), max_cached_workflows=1, sticky_queue=None
        )
        self._shell = WorkflowShell(
            stream_settings(config, settings, has_sdk_metadata=True, replay=True),
            _Nowhere(),
            journal=Journal(log),
            on_run_removed=self._run_removed,
        )
        self._waiting: deque[tuple[PollWorkflowTaskQueueResponse, asyncio.Future[None]]] = deque()
        self._busy = False
        self._closed = False
        self._ended = False

    # Histories

    def push(self, workflow_id: str, raw: bytes) -> asyncio.Future[None]:
        """Replay this history when those before it are done."""
        task = task_of(workflow_id, History.FromString(raw))
        accepted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((task, accepted))
        if not self._busy:
            self._next()
        return accepted

    def close(self) -> None:
        self._closed = True
        if not self._busy:
            self._next()

    def _next(self) -> None:
        if self._waiting:
            task, accepted = self._waiting.popleft()
            self._busy = True
            if not accepted.done():
                accepted.set_result(None)
            now = asyncio.get_running_loop().time()
            self._shell.feed(NewTask(task, _Permit(), now))
        elif self._closed and not self._ended:
            self._ended = True
            self._shell.feed(ShutdownRequested())
            self._shell.feed(PollersStopped())

    def _run_removed(self, run_id: str) -> None:
        del run_id
        self._busy = False
        self._next()

    # The worker

    async def validate(self) -> bytes:
        return NamespaceInfo().SerializeToString()

    def poll_workflow_activation(self) -> asyncio.Future[bytes]:
        return self._shell.mailbox.poll()

    def poll_activity_task(self) -> asyncio.Future[bytes]:
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        future.set_exception(PollShutdownError())
        return future

    def poll_nexus_task(self) -> asyncio.Future[bytes]:
        return self.poll_activity_task()

    def complete_workflow_activation(self, raw: bytes) -> None:
        self._shell.complete(raw)

    def complete_activity_task(self, raw: bytes) -> None:
        del raw
        raise RuntimeError("a replay worker runs no activities")

    def complete_nexus_task(self, raw: bytes) -> None:
        del raw
        raise RuntimeError("a replay worker runs no Nexus operations")

    def record_activity_heartbeat(self, raw: bytes) -> None:
        del raw
        raise RuntimeError("a replay worker runs no activities")

    def request_workflow_eviction(self, run_id: str) -> None:
        reason = RemoveFromCache.EvictionReason.LANG_REQUESTED
        self._shell.feed(EvictionRequested(run_id, "Eviction explicitly requested", reason))

    def replace_client(self, client: ClientRef) -> None:
        del client
        raise RuntimeError("a replay worker has no client")

    def initiate_shutdown(self) -> None:
        self._waiting.clear()
        self.close()

    async def finalize_shutdown(self) -> None:
        await self._shell.idle()


class _Permit:
    """Stands for the slot of the only task. Nothing follows its release: the run has to leave the
    cache first."""

    __slots__ = ()

    def release(self) -> None:
        """See the class."""


class _Nowhere:
    """A service that takes every answer and gives nothing."""

    async def complete_workflow_task(
        self, request: RespondWorkflowTaskCompletedRequest
    ) -> RespondWorkflowTaskCompletedResponse:
        del request
        return RespondWorkflowTaskCompletedResponse()

    async def fail_workflow_task(self, request: RespondWorkflowTaskFailedRequest) -> None:
        del request

    async def answer_query(self, request: RespondQueryTaskCompletedRequest) -> None:
        del request

    async def history(
        self, request: GetWorkflowExecutionHistoryRequest
    ) -> GetWorkflowExecutionHistoryResponse:
        del request
        return GetWorkflowExecutionHistoryResponse()


def task_of(workflow_id: str, history: History) -> PollWorkflowTaskQueueResponse:
    """The workflow task that makes a worker replay the whole history; raises `InvalidHistory`."""
    events = history.events
    if not events or not events[0].HasField("workflow_execution_started_event_attributes"):
        raise InvalidHistory("a history has to begin with WorkflowExecutionStarted")
    started = events[0].workflow_execution_started_event_attributes
    last, before = _last_started(history)
    if events[-1].event_type != EventType.EVENT_TYPE_WORKFLOW_TASK_STARTED:
        before = last
    return PollWorkflowTaskQueueResponse(
        task_token=uuid.uuid4().bytes,
        workflow_execution=WorkflowExecution(
            workflow_id=workflow_id, run_id=started.original_execution_run_id
        ),
        workflow_type=WorkflowType(name=started.workflow_type.name),
        workflow_execution_task_queue=TaskQueue(name=started.task_queue.name),
        history=history,
        started_event_id=last,
        previous_started_event_id=before,
        attempt=1,
    )


def _last_started(history: History) -> tuple[int, int]:
    """The ids of the last two workflow tasks that did not fail, 0 where there is none."""
    last = before = 0
    events = history.events
    for index, event in enumerate(events):
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_STARTED:
            following = events[index + 1] if index + 1 < len(events) else None
            if following is None or following.event_type not in _FAILED:
                last, before = event.event_id, last
    return last, before
