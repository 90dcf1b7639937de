"""Builds workflow histories for tests, event by event, without a server.

`add(kind, **fields)` appends any event: `kind` is its name in lower case (`"timer_started"`)
and the fields are those of its attributes. The named methods are shorthands with good defaults.
Every method that appends one event returns its id. Each event is one second after the one before.
`HistorySlice` is what a poll would carry: some events and the two started ids.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from temporalio.api.common.v1 import (
    ActivityType,
    Payload,
    Payloads,
    WorkflowExecution,
    WorkflowType,
)
from temporalio.api.enums.v1 import EventType
from temporalio.api.failure.v1 import (
    ApplicationFailureInfo,
    CanceledFailureInfo,
    Failure,
    TimeoutFailureInfo,
)
from temporalio.api.history.v1 import History, HistoryEvent
from temporalio.api.protocol.v1 import Message
from temporalio.api.query.v1 import WorkflowQuery
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.update.v1 import Input, Meta, Outcome, Request
from temporalio.api.workflowservice.v1 import (
    GetWorkflowExecutionHistoryResponse,
    PollWorkflowTaskQueueResponse,
)

START = datetime(2026, 1, 1, tzinfo=UTC)

_STARTED = EventType.EVENT_TYPE_WORKFLOW_TASK_STARTED
_SWALLOWS_TASK = frozenset(
    {
        EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED,
        EventType.EVENT_TYPE_WORKFLOW_TASK_TIMED_OUT,
    }
)


def payload(value: object) -> Payload:
    """A json/plain payload."""
    return Payload(metadata={"encoding": b"json/plain"}, data=json.dumps(value).encode())


def payloads(*values: object) -> Payloads:
    return Payloads(payloads=[payload(value) for value in values])


def application_failure(
    message: str = "went wrong", kind: str = "Fault", *, non_retryable: bool = False
) -> Failure:
    return Failure(
        message=message,
        application_failure_info=ApplicationFailureInfo(type=kind, non_retryable=non_retryable),
    )


def cancelled_failure(*details: object) -> Failure:
    info = CanceledFailureInfo(details=payloads(*details) if details else None)
    return Failure(message="cancelled", canceled_failure_info=info)


def timeout_failure(kind: int) -> Failure:
    info = TimeoutFailureInfo(timeout_type=kind)  # type: ignore[arg-type]
    return Failure(message="timed out", timeout_failure_info=info)


def timestamp(moment: datetime) -> Timestamp:
    result = Timestamp()
    result.FromDatetime(moment)
    return result


def duration(seconds: float) -> Duration:
    result = Duration()
    result.FromTimedelta(timedelta(seconds=seconds))
    return result


def _moment(stamp: Timestamp) -> dict[str, int]:
    return {"seconds": stamp.seconds, "nanos": stamp.nanos}


@dataclass(slots=True, frozen=True)
class HistorySlice:
    """Events as a poll delivers them."""

    events: list[HistoryEvent]
    previous_started_event_id: int
    started_event_id: int

    def history(self) -> History:
        return History(events=self.events)


class HistoryBuilder:
    """A history that grows; see the module."""

    __slots__ = (
        "_last_completed",
        "_last_scheduled",
        "_last_started",
        "events",
        "original_run_id",
        "run_id",
        "task_queue",
        "workflow_id",
        "workflow_type",
    )

    def __init__(
        self,
        *,
        run_id: str = "run-id",
        workflow_id: str = "workflow-id",
        workflow_type: str = "workflow-type",
        task_queue: str = "task-queue",
        original_run_id: str | None = None,
    ) -> None:
        self.events: list[HistoryEvent] = []
        self.run_id = run_id
        self.original_run_id = original_run_id or run_id
        self.workflow_id = workflow_id
        self.workflow_type = workflow_type
        self.task_queue = task_queue
        self._last_scheduled = 0
        self._last_started = 0
        self._last_completed = 0

    # Appending

    @property
    def last_event_id(self) -> int:
        return len(self.events)

    @property
    def last_task_completed(self) -> int:
        """Id of the newest WorkflowTaskCompleted event."""
        return self._last_completed

    @property
    def last_task_started(self) -> int:
        return self._last_started

    def event(self, event_id: int) -> HistoryEvent:
        """The event itself, to be changed in place."""
        return self.events[event_id - 1]

    def add(self, kind: str, **fields: Any) -> int:
        """Append the event named `kind` with these attributes; its id is returned."""
        event_id = len(self.events) + 1
        event = HistoryEvent(
            event_id=event_id,
            event_time=timestamp(START + timedelta(seconds=event_id)),
            event_type=EventType.Value("EVENT_TYPE_" + kind.upper()),
            task_id=event_id,
        )
        attributes = getattr(event, kind + "_event_attributes")
        attributes.SetInParent()
        attributes.MergeFrom(type(attributes)(**fields))
        self.events.append(event)
        return event_id

    def ignorable(self, event_type: int = 5000) -> int:
        """An event of a type from the future that workers may ignore."""
        event_id = len(self.events) + 1
        self.events.append(
            HistoryEvent(
                event_id=event_id,
                event_time=timestamp(START + timedelta(seconds=event_id)),
                event_type=event_type,  # type: ignore[arg-type]
                worker_may_ignore=True,
            )
        )
        return event_id

    # The workflow

    def started(self, *arguments: object, **fields: Any) -> int:
        defaults: dict[str, Any] = {
            "workflow_type": WorkflowType(name=self.workflow_type),
            "task_queue": TaskQueue(name=self.task_queue),
            "workflow_id": self.workflow_id,
            "original_execution_run_id": self.original_run_id,
            "first_execution_run_id": self.original_run_id,
            "workflow_task_timeout": duration(10),
            "attempt": 1,
            "identity": "client",
            "input": payloads(*arguments) if arguments else None,
        }
        return self.add("workflow_execution_started", **(defaults | fields))

    def completed(self, **fields: Any) -> int:
        return self._of_task("workflow_execution_completed", fields)

    def failed(self, failure: Failure | None = None) -> int:
        return self._of_task(
            "workflow_execution_failed", {"failure": failure or application_failure()}
        )

    def canceled(self) -> int:
        return self._of_task("workflow_execution_canceled", {})

    def continued_as_new(self, **fields: Any) -> int:
        return self._of_task(
            "workflow_execution_continued_as_new", {"new_execution_run_id": "next-run"} | fields
        )

    def terminated(self) -> int:
        return self.add("workflow_execution_terminated", reason="terminated")

    def timed_out(self) -> int:
        return self.add("workflow_execution_timed_out")

    def signaled(self, name: str = "signal", *arguments: object, **fields: Any) -> int:
        return self.add(
            "workflow_execution_signaled",
            **({"signal_name": name, "input": payloads(*arguments)} | fields),
        )

    def cancel_requested(self, reason: str = "") -> int:
        return self.add("workflow_execution_cancel_requested", cause=reason)

    # Workflow tasks

    def task_scheduled(self) -> int:
        self._last_scheduled = self.add(
            "workflow_task_scheduled",
            task_queue=TaskQueue(name=self.task_queue),
            start_to_close_timeout=duration(10),
            attempt=1,
        )
        return self._last_scheduled

    def task_started(self, **fields: Any) -> int:
        self._last_started = self.add(
            "workflow_task_started", scheduled_event_id=self._last_scheduled, **fields
        )
        return self._last_started

    def task_completed(
        self,
        *,
        core_flags: Sequence[int] = (),
        lang_flags: Sequence[int] = (),
        **fields: Any,
    ) -> int:
        self._last_completed = self.add(
            "workflow_task_completed",
            scheduled_event_id=self._last_scheduled,
            started_event_id=self._last_started,
            **fields,
        )
        if core_flags or lang_flags:
            self.set_flags(self._last_completed, core=core_flags, lang=lang_flags)
        return self._last_completed

    def set_flags(
        self, completed_event_id: int, *, core: Iterable[int] = (), lang: Iterable[int] = ()
    ) -> None:
        attributes = self.event(completed_event_id).workflow_task_completed_event_attributes
        attributes.sdk_metadata.core_used_flags.extend(core)
        attributes.sdk_metadata.lang_used_flags.extend(lang)

    def task_failed(self, cause: int = 14, **fields: Any) -> int:
        return self.add(
            "workflow_task_failed",
            scheduled_event_id=self._last_scheduled,
            started_event_id=self._last_started,
            cause=cause,
            **fields,
        )

    def task_timed_out(self) -> int:
        return self.add(
            "workflow_task_timed_out",
            scheduled_event_id=self._last_scheduled,
            started_event_id=self._last_started,
            timeout_type=1,
        )

    def task_scheduled_and_started(self) -> int:
        """Scheduled and started; the started id is returned."""
        self.task_scheduled()
        return self.task_started()

    def full_task(self) -> int:
        """Scheduled, started and completed; the completed id is returned."""
        self.task_scheduled_and_started()
        return self.task_completed()

    # Timers

    def timer_started(self, seq: int = 1, *, seconds: float = 1) -> int:
        return self._of_task(
            "timer_started",
            {"timer_id": str(seq), "start_to_fire_timeout": duration(seconds)},
        )

    def timer_fired(self, started_event_id: int, seq: int = 1) -> int:
        return self.add("timer_fired", started_event_id=started_event_id, timer_id=str(seq))

    def timer_canceled(self, started_event_id: int, seq: int = 1) -> int:
        return self._of_task(
            "timer_canceled", {"started_event_id": started_event_id, "timer_id": str(seq)}
        )

    # Activities

    def activity_scheduled(
        self, activity_id: str = "1", activity_type: str = "activity", **fields: Any
    ) -> int:
        return self._of_task(
            "activity_task_scheduled",
            {
                "activity_id": activity_id,
                "activity_type": ActivityType(name=activity_type),
                "task_queue": TaskQueue(name=self.task_queue),
            }
            | fields,
        )

    def activity_started(self, scheduled_event_id: int) -> int:
        return self.add("activity_task_started", scheduled_event_id=scheduled_event_id, attempt=1)

    def activity_completed(
        self, scheduled_event_id: int, started_event_id: int, result: object = None
    ) -> int:
        return self.add(
            "activity_task_completed",
            scheduled_event_id=scheduled_event_id,
            started_event_id=started_event_id,
            result=payloads(result),
        )

    def activity_failed(
        self, scheduled_event_id: int, started_event_id: int, failure: Failure | None = None
    ) -> int:
        return self.add(
            "activity_task_failed",
            scheduled_event_id=scheduled_event_id,
            started_event_id=started_event_id,
            failure=failure or application_failure(),
        )

    def activity_timed_out(
        self, scheduled_event_id: int, started_event_id: int = 0, kind: int = 1
    ) -> int:
        return self.add(
            "activity_task_timed_out",
            scheduled_event_id=scheduled_event_id,
            started_event_id=started_event_id,
            failure=timeout_failure(kind),
        )

    def activity_cancel_requested(self, scheduled_event_id: int) -> int:
        return self._of_task(
            "activity_task_cancel_requested", {"scheduled_event_id": scheduled_event_id}
        )

    def activity_canceled(
        self, scheduled_event_id: int, started_event_id: int, *details: object
    ) -> int:
        return self.add(
            "activity_task_canceled",
            scheduled_event_id=scheduled_event_id,
            started_event_id=started_event_id,
            details=payloads(*details) if details else None,
        )

    # Markers

    def marker(
        self, name: str, details: Mapping[str, Payload], failure: Failure | None = None
    ) -> int:
        return self._of_task(
            "marker_recorded",
            {
                "marker_name": name,
                "details": {key: Payloads(payloads=[value]) for key, value in details.items()},
                "failure": failure,
            },
        )

    def patch_marker(self, patch_id: str, *, deprecated: bool = False) -> int:
        data = payload({"id": patch_id, "deprecated": deprecated})
        return self.marker("core_patch", {"patch-data": data})

    def old_patch_marker(self, patch_id: str, *, deprecated: bool = False) -> int:
        """The format of the first releases: two raw-bytes details."""
        return self.marker(
            "core_patch",
            {
                "patch_id": Payload(data=patch_id.encode()),
                "deprecated": Payload(data=bytes([deprecated])),
            },
        )

    def patch_search_attributes(self, *patch_ids: str) -> int:
        """The upsert of TemporalChangeVersion that follows a patch marker."""
        value = payload(sorted(patch_ids))
        value.metadata["type"] = b"KeywordList"
        return self._of_task(
            "upsert_workflow_search_attributes",
            {"search_attributes": {"indexed_fields": {"TemporalChangeVersion": value}}},
        )

    def local_activity_marker(
        self,
        seq: int,
        result: object = None,
        *,
        activity_id: str | None = None,
        activity_type: str = "activity",
        attempt: int = 1,
        failure: Failure | None = None,
        complete_time: datetime | None = None,
        original_schedule_time: datetime | None = None,
        backoff_seconds: int | None = None,
        activation_index: int | None = None,
    ) -> int:
        """With `failure` the marker has no result."""
        data: dict[str, Any] = {
            "seq": seq,
            "attempt": attempt,
            "activity_id": activity_id if activity_id is not None else str(seq),
            "activity_type": activity_type,
            "complete_time": _moment(timestamp(complete_time)) if complete_time else None,
            "backoff": (
                None if backoff_seconds is None else {"seconds": backoff_seconds, "nanos": 0}
            ),
            "original_schedule_time": (
                _moment(timestamp(original_schedule_time)) if original_schedule_time else None
            ),
        }
        if activation_index is not None:
            data["activation_index"] = activation_index
        details = {"data": payload(data)}
        if failure is None:
            details["result"] = payload(result)
        return self.marker("core_local_activity", details, failure)

    # Children and other workflows

    def child_initiated(
        self, workflow_id: str = "child-id", workflow_type: str = "child", **fields: Any
    ) -> int:
        return self._of_task(
            "start_child_workflow_execution_initiated",
            {"workflow_id": workflow_id, "workflow_type": WorkflowType(name=workflow_type)}
            | fields,
        )

    def child_started(
        self,
        initiated_event_id: int,
        workflow_id: str = "child-id",
        workflow_type: str = "child",
        run_id: str = "child-run",
    ) -> int:
        return self.add(
            "child_workflow_execution_started",
            initiated_event_id=initiated_event_id,
            workflow_execution=WorkflowExecution(workflow_id=workflow_id, run_id=run_id),
            workflow_type=WorkflowType(name=workflow_type),
        )

    def child_start_failed(
        self,
        initiated_event_id: int,
        workflow_id: str = "child-id",
        workflow_type: str = "child",
        cause: int = 1,
    ) -> int:
        return self.add(
            "start_child_workflow_execution_failed",
            initiated_event_id=initiated_event_id,
            workflow_id=workflow_id,
            workflow_type=WorkflowType(name=workflow_type),
            cause=cause,
        )

    def child_ended(
        self, how: str, initiated_event_id: int, started_event_id: int, **fields: Any
    ) -> int:
        """`how` is one of completed, failed, canceled, timed_out, terminated."""
        return self.add(
            f"child_workflow_execution_{how}",
            initiated_event_id=initiated_event_id,
            started_event_id=started_event_id,
            workflow_execution=WorkflowExecution(workflow_id="child-id", run_id="child-run"),
            workflow_type=WorkflowType(name="child"),
            **fields,
        )

    def signal_external_initiated(
        self, workflow_id: str = "other-id", name: str = "signal", **fields: Any
    ) -> int:
        return self._of_task(
            "signal_external_workflow_execution_initiated",
            {
                "workflow_execution": WorkflowExecution(workflow_id=workflow_id),
                "signal_name": name,
            }
            | fields,
        )

    def external_signaled(self, initiated_event_id: int) -> int:
        return self.add(
            "external_workflow_execution_signaled", initiated_event_id=initiated_event_id
        )

    def signal_external_failed(self, initiated_event_id: int, cause: int = 1) -> int:
        return self.add(
            "signal_external_workflow_execution_failed",
            initiated_event_id=initiated_event_id,
            cause=cause,
        )

    def cancel_external_initiated(self, workflow_id: str = "other-id", **fields: Any) -> int:
        return self._of_task(
            "request_cancel_external_workflow_execution_initiated",
            {"workflow_execution": WorkflowExecution(workflow_id=workflow_id)} | fields,
        )

    def external_cancel_requested(self, initiated_event_id: int) -> int:
        return self.add(
            "external_workflow_execution_cancel_requested", initiated_event_id=initiated_event_id
        )

    def cancel_external_failed(self, initiated_event_id: int, cause: int = 1) -> int:
        return self.add(
            "request_cancel_external_workflow_execution_failed",
            initiated_event_id=initiated_event_id,
            cause=cause,
        )

    # Updates

    def update_accepted(
        self, instance_id: str = "update", *, sequencing_event_id: int = 0, name: str = "change"
    ) -> int:
        return self.add(
            "workflow_execution_update_accepted",
            protocol_instance_id=instance_id,
            accepted_request_message_id=f"{instance_id}/request",
            accepted_request_sequencing_event_id=sequencing_event_id,
            accepted_request=update_request(instance_id, name),
        )

    def update_completed(
        self, accepted_event_id: int, instance_id: str = "update", result: object = None
    ) -> int:
        return self.add(
            "workflow_execution_update_completed",
            meta=Meta(update_id=instance_id),
            accepted_event_id=accepted_event_id,
            outcome=Outcome(success=payloads(result)),
        )

    def update_admitted(self, instance_id: str = "update", name: str = "change") -> int:
        return self.add(
            "workflow_execution_update_admitted", request=update_request(instance_id, name)
        )

    # Nexus

    def nexus_scheduled(
        self, endpoint: str = "endpoint", service: str = "service", operation: str = "operation"
    ) -> int:
        return self._of_task(
            "nexus_operation_scheduled",
            {"endpoint": endpoint, "service": service, "operation": operation},
        )

    def nexus_cancel_requested(self, scheduled_event_id: int) -> int:
        return self._of_task(
            "nexus_operation_cancel_requested", {"scheduled_event_id": scheduled_event_id}
        )

    def nexus(self, what: str, scheduled_event_id: int, **fields: Any) -> int:
        """`what` is one of started, completed, failed, canceled, timed_out, …"""
        return self.add(f"nexus_operation_{what}", scheduled_event_id=scheduled_event_id, **fields)

    # What a worker would be given

    def history(self) -> History:
        return History(events=self.events)

    def task_ends(self) -> list[int]:
        """Ids of the WorkflowTaskStarted events whose task did not fail or time out."""
        ends = []
        for index, event in enumerate(self.events):
            if event.event_type != _STARTED:
                continue
            after = self.events[index + 1].event_type if index + 1 < len(self.events) else None
            if after not in _SWALLOWS_TASK:
                ends.append(event.event_id)
        return ends

    def whole(self) -> HistorySlice:
        """All events, as a replay gets them.

        When the history ends on a started task, that task is the live one; otherwise everything
        counts as replay.
        """
        ends = self.task_ends()
        started = ends[-1] if ends else 0
        live = bool(ends) and started == len(self.events)
        previous = (ends[-2] if len(ends) > 1 else 0) if live else started
        return HistorySlice(list(self.events), previous, started)

    def to_task(self, number: int) -> HistorySlice:
        """From the first event to the start of workflow task `number` (from 1), which is live."""
        ends = self.task_ends()
        previous = ends[number - 2] if number > 1 else 0
        return HistorySlice(self.events[: ends[number - 1]], previous, ends[number - 1])

    def only_task(self, number: int) -> HistorySlice:
        """What a sticky poll of workflow task `number` carries: only the new events."""
        upto = self.to_task(number)
        previous = upto.previous_started_event_id
        return HistorySlice(upto.events[previous:], previous, upto.started_event_id)

    def between(self, first: int, last: int) -> list[HistoryEvent]:
        """Events by id, both ends included."""
        return self.events[first - 1 : last]

    def poll(
        self,
        part: HistorySlice | None = None,
        *,
        attempt: int = 1,
        token: bytes = b"task-token",
        next_page_token: bytes = b"",
        query: WorkflowQuery | None = None,
        queries: Mapping[str, WorkflowQuery] | None = None,
        messages: Iterable[Message] = (),
    ) -> PollWorkflowTaskQueueResponse:
        """The answer of a poll with this slice (default: the whole history)."""
        part = part if part is not None else self.whole()
        return PollWorkflowTaskQueueResponse(
            task_token=token,
            workflow_execution=WorkflowExecution(workflow_id=self.workflow_id, run_id=self.run_id),
            workflow_type=WorkflowType(name=self.workflow_type),
            previous_started_event_id=part.previous_started_event_id,
            started_event_id=part.started_event_id,
            attempt=attempt,
            history=part.history(),
            next_page_token=next_page_token,
            query=query,
            queries=queries or {},
            messages=messages,
            workflow_execution_task_queue=TaskQueue(name=self.task_queue),
        )

    def page(
        self, first: int, last: int, next_page_token: bytes = b""
    ) -> GetWorkflowExecutionHistoryResponse:
        """The answer of a history fetch with the events `first` to `last`."""
        return GetWorkflowExecutionHistoryResponse(
            history=History(events=self.between(first, last)), next_page_token=next_page_token
        )

    def _of_task(self, kind: str, fields: Mapping[str, Any]) -> int:
        return self.add(
            kind, **({"workflow_task_completed_event_id": self._last_completed} | dict(fields))
        )


def update_request(instance_id: str = "update", name: str = "change") -> Request:
    return Request(
        meta=Meta(update_id=instance_id, identity="client"),
        input=Input(name=name, args=payloads("argument")),
    )


def update_message(
    instance_id: str = "update", *, event_id: int | None = None, name: str = "change"
) -> Message:
    """The protocol message with which the server asks for an update."""
    message = Message(id=f"{instance_id}/request", protocol_instance_id=instance_id)
    if event_id is not None:
        message.event_id = event_id
    message.body.Pack(update_request(instance_id, name))
    return message
