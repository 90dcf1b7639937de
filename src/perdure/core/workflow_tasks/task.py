"""Workflow tasks as the stream holds them: checked, unpacked, buffered.

`prepare` turns the answer of a poll into a `PreparedTask` or says what is missing; a `HeldTask` is
a task together with its slot and its history; `TaskBuffer` keeps what arrives for a run that is
busy. A *query-only* task carries nothing but one query in the old form (no workflow task was
started for it); it is answered by an RPC of its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from operator import itemgetter
from typing import TypeAlias

from temporalio.api.history.v1.message_pb2 import HistoryEvent
from temporalio.api.protocol.v1.message_pb2 import Message
from temporalio.api.query.v1.message_pb2 import WorkflowQuery
from temporalio.api.workflowservice.v1.request_response_pb2 import PollWorkflowTaskQueueResponse

from perdure.core.history.paginator import HistoryPaginator
from perdure.core.history.sequences import HistoryUpdate
from perdure.errors import WorldError

__all__ = [
    "LEGACY_QUERY_ID",
    "HeldTask",
    "MalformedTask",
    "OutstandingTask",
    "PreparedTask",
    "Query",
    "TaskBuffer",
    "prepare",
]

LEGACY_QUERY_ID = "legacy_query"

Query: TypeAlias = tuple[str, WorkflowQuery]
"""A query with the id under which it is answered."""


class MalformedTask(WorldError):
    """The server gave a workflow task that cannot be worked on: `missing` is not in it."""

    code = "core.malformed_task"

    def __init__(self, workflow_id: str, run_id: str, missing: str) -> None:
        super().__init__(
            f"the server's workflow task for workflow {workflow_id!r} (run {run_id!r}) has no "
            f"{missing}; this is a fault of the server or of what stands between it and us"
        )
        self.workflow_id = workflow_id
        self.run_id = run_id
        self.missing = missing


class PreparedTask:
    """What a poll gave, with everything in it that work needs."""

    __slots__ = (
        "attempt",
        "events",
        "legacy_query",
        "messages",
        "next_page_token",
        "previous_started_event_id",
        "queries",
        "run_id",
        "started_event_id",
        "task_queue",
        "token",
        "workflow_id",
        "workflow_type",
    )

    def __init__(
        self,
        *,
        token: bytes,
        attempt: int,
        workflow_id: str,
        run_id: str,
        workflow_type: str,
        task_queue: str,
        previous_started_event_id: int,
        started_event_id: int,
        events: Sequence[HistoryEvent],
        next_page_token: bytes,
        legacy_query: WorkflowQuery | None,
        queries: Sequence[Query],
        messages: Sequence[Message],
    ) -> None:
        self.token = token
        self.attempt = attempt
        self.workflow_id = workflow_id
        self.run_id = run_id
        self.workflow_type = workflow_type
        self.task_queue = task_queue
        self.previous_started_event_id = previous_started_event_id
        self.started_event_id = started_event_id
        self.events = events
        self.next_page_token = next_page_token
        self.legacy_query = legacy_query
        self.queries = queries
        self.messages = messages

    @property
    def is_query_only(self) -> bool:
        """True if there is nothing in it but one query in the old form."""
        return self.started_event_id == 0 and self.legacy_query is not None

    @property
    def update_after(self) -> int | None:
        """The event after which the first update that it brings comes; None if it brings none."""
        due = [m.event_id for m in self.messages if m.WhichOneof("sequencing_id") == "event_id"]
        return min(due, default=None)


def prepare(response: PollWorkflowTaskQueueResponse) -> PreparedTask:
    """Check and unpack the answer of a poll. Raises `MalformedTask`."""
    missing = _missing_part(response)
    execution = response.workflow_execution
    if missing:
        raise MalformedTask(execution.workflow_id, execution.run_id, missing)
    return PreparedTask(
        token=response.task_token,
        attempt=response.attempt,
        workflow_id=execution.workflow_id,
        run_id=execution.run_id,
        workflow_type=response.workflow_type.name,
        task_queue=response.workflow_execution_task_queue.name,
        previous_started_event_id=response.previous_started_event_id,
        started_event_id=response.started_event_id,
        events=response.history.events,
        next_page_token=response.next_page_token,
        legacy_query=response.query if response.HasField("query") else None,
        queries=sorted(response.queries.items(), key=itemgetter(0)),
        messages=response.messages,
    )


def _missing_part(response: PollWorkflowTaskQueueResponse) -> str:
    if not response.task_token:
        return "task token"
    for field in (
        "workflow_execution_task_queue",
        "workflow_execution",
        "workflow_type",
        "history",
    ):
        if not response.HasField(field):
            return field.replace("_", " ")
    return "" if response.workflow_execution.run_id else "run id"


class HeldTask:
    """A task with its slot and the first part of its history, ready to be given to its run.

    `pages` is asked for more when the run has used up `history`.
    """

    __slots__ = ("history", "pages", "permit", "received_at", "work")

    def __init__(
        self,
        work: PreparedTask,
        permit: object,
        received_at: float,
        pages: HistoryPaginator,
        history: HistoryUpdate,
    ) -> None:
        self.work = work
        self.permit = permit
        self.received_at = received_at
        self.pages = pages
        self.history = history


class OutstandingTask:
    """The task that a run works on until the server has its answer.

    `is_replay` is true as long as what came before the task may still have to be replayed.
    """

    __slots__ = ("attempt", "is_replay", "pending_queries", "permit", "received_at", "token")

    def __init__(self, work: PreparedTask, permit: object, received_at: float) -> None:
        self.token = work.token
        self.attempt = work.attempt
        self.permit = permit
        self.received_at = received_at
        self.is_replay = work.previous_started_event_id > 0 and not work.is_query_only
        self.pending_queries = list(work.queries)
        if work.legacy_query is not None:
            self.pending_queries.append((LEGACY_QUERY_ID, work.legacy_query))

    @property
    def has_legacy_query(self) -> bool:
        return any(query_id == LEGACY_QUERY_ID for query_id, _ in self.pending_queries)


class TaskBuffer:
    """What waits for one busy run: at most one real task, and query-only tasks around it.

    A newer real task replaces the older one, which the server has given up by then, together with
    the queries that came after that older one.
    """

    __slots__ = ("_queries_after", "_queries_before", "_real")

    def __init__(self) -> None:
        self._queries_before: deque[HeldTask] = deque()
        self._real: HeldTask | None = None
        self._queries_after: deque[HeldTask] = deque()

    def __len__(self) -> int:
        return len(self._queries_before) + len(self._queries_after) + (self._real is not None)

    @property
    def has_real_task(self) -> bool:
        return self._real is not None

    def put(self, task: HeldTask) -> list[HeldTask]:
        """Keep the task; the ones that it makes obsolete are returned."""
        if task.work.is_query_only:
            queue = self._queries_before if self._real is None else self._queries_after
            queue.append(task)
            return []
        obsolete = [] if self._real is None else [self._real, *self._queries_after]
        self._queries_after.clear()
        self._real = task
        return obsolete

    def pop(self) -> HeldTask | None:
        """The next one: queries of before, queries for the real task, the real task."""
        if self._queries_before:
            return self._queries_before.popleft()
        if self._queries_after:
            return self._queries_after.popleft()
        task, self._real = self._real, None
        return task

    def drain(self) -> list[HeldTask]:
        """All of them, in order."""
        drained = []
        while (task := self.pop()) is not None:
            drained.append(task)
        return drained
